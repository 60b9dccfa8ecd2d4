"""The teacher reads what the student reads."""

from __future__ import annotations

from potstill.contracts.context import PlainContext
from potstill.contracts.problem import Message, Problem
from services.rollout.contexts.context import Context


class Plain(Context):
    def __init__(self, spec: PlainContext) -> None:
        self.spec = spec

    async def messages(self, problem: Problem, response: str) -> tuple[Message, ...]:
        return problem.prompt
