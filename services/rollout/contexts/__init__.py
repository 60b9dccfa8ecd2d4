"""What a teacher reads before it scores a response. A new context is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from potstill.contracts.context import TeacherContext
from services.rollout.contexts.context import Context
from services.rollout.contexts.critique import Critique
from services.rollout.contexts.demonstrations import Demonstrations
from services.rollout.contexts.plain import Plain
from services.rollout.contexts.solution import Solution
from services.rollout.contexts.template import Template

CONTEXTS: Mapping[str, Callable[[Any], Context]] = {
    "plain": Plain,
    "demonstrations": Demonstrations,
    "solution": Solution,
    "template": Template,
    "critique": Critique,
}


def context_of(spec: TeacherContext) -> Context:
    """The context that a job's teacher has."""
    return CONTEXTS[spec.kind](spec)
