"""The registry of kinds: a new one is a file in this folder and a line here.

The service reads names only. Workers import the modules, so that nothing a kind needs is loaded outside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from potstill.contracts.verification import VerifyItem
from services.verifier.judgement import Judgement

MODULES = {
    "math": "services.verifier.kinds.math",
    "exact": "services.verifier.kinds.exact",
    "choice": "services.verifier.kinds.choice",
}


@dataclass(frozen=True)
class Kind:
    """How one kind of response is judged."""

    judge: Callable[[VerifyItem], Judgement]
    self_test: VerifyItem  # a worker that does not accept it takes no work


def load(name: str) -> Kind:
    """Import a kind; its module defines `KIND`."""
    kind = import_module(MODULES[name]).KIND
    assert isinstance(kind, Kind)
    return kind
