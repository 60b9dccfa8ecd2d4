"""What a teacher reads before it scores a response. A new context is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from potstill.contracts.job import TeacherContext
from potstill.contracts.problem import Message, Problem
from services.rollout.contexts.demonstrations import demonstrations
from services.rollout.contexts.plain import plain

ContextBuilder = Callable[[Any, Problem], tuple[Message, ...]]

BUILDERS: Mapping[str, ContextBuilder] = {
    "plain": plain,
    "demonstrations": demonstrations,
}


def build_context(context: TeacherContext, problem: Problem) -> tuple[Message, ...]:
    """The messages of a teacher's prompt. Raises TicketError when the row lacks what the context needs."""
    return BUILDERS[context.kind](context, problem)
