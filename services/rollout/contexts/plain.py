"""The teacher reads what the student reads."""

from __future__ import annotations

from potstill.contracts.job import PlainContext
from potstill.contracts.problem import Message, Problem


def plain(_context: PlainContext, problem: Problem) -> tuple[Message, ...]:
    return problem.prompt
