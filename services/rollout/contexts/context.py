"""What every context does."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from potstill.contracts.problem import Message, Problem
from services.rollout.errors import Reason, TicketError


class Context(ABC):
    """What one teacher of one job reads."""

    reads_response = False  # whether each sample has a prompt of its own

    @abstractmethod
    async def messages(self, problem: Problem, response: str) -> tuple[Message, ...]:
        """The teacher's prompt. Raises TicketError when the row has no such prompt."""

    async def close(self) -> None:  # noqa: B027 - most hold nothing
        """Let go of connections."""


def filled(template: str, **values: str) -> str:
    """The template with each `{name}` replaced, once: what a value contains is left as it is."""
    names = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({names})\}}", lambda found: values[found[1]], template)


def solution_of(problem: Problem) -> str:
    """Raises TicketError when the row has none."""
    if problem.solution is None:
        raise TicketError(Reason.NO_SOLUTION, f"row {problem.id} has no solution, but its teacher's context shows one")
    return problem.solution


def with_last(prompt: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    """The prompt with another text in its last message."""
    return (*prompt[:-1], Message(prompt[-1].role, text))
