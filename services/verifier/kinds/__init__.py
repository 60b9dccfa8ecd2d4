"""The registry of kinds: a new one is a file in this folder and a line here.

The service reads names only. Workers import the modules, so that nothing a kind needs is loaded outside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

from potstill.contracts.verification import VerifyItem
from services.verifier.judgement import Judgement
from services.verifier.settings import SandboxOptions

MODULES = {
    "math": "services.verifier.kinds.math",
    "exact": "services.verifier.kinds.exact",
    "choice": "services.verifier.kinds.choice",
    "code": "services.verifier.kinds.code",
}
BY_TESTS = frozenset({"code"})  # these are judged by an item's tests; the others by its reference


class KindUnavailableError(Exception):
    """This host cannot judge the kind; the text says why."""


@dataclass(frozen=True)
class Prepared:
    layers: tuple[str, ...] = ()  # what isolates that which the kind runs, as found in force
    missing: dict[str, str] = field(default_factory=dict)  # a layer that is not, and why


def _nothing(_options: SandboxOptions) -> Prepared:
    return Prepared()


@dataclass(frozen=True)
class Kind:
    """How one kind of response is judged."""

    judge: Callable[[VerifyItem], Judgement]
    self_test: VerifyItem  # a worker that does not accept it takes no work
    prepare: Callable[[SandboxOptions], Prepared] = _nothing  # runs before the worker limits itself


def load(name: str) -> Kind:
    """Import a kind; its module defines `KIND`."""
    kind = import_module(MODULES[name]).KIND
    assert isinstance(kind, Kind)
    return kind
