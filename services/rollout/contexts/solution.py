"""The reference solution inside the prompt."""

from __future__ import annotations

from potstill.contracts.context import SolutionContext
from potstill.contracts.problem import Message, Problem
from services.rollout.contexts.context import Context, filled, solution_of, with_last


class Solution(Context):
    def __init__(self, spec: SolutionContext) -> None:
        self.spec = spec

    async def messages(self, problem: Problem, response: str) -> tuple[Message, ...]:
        prompt = problem.prompt[-1].content
        return with_last(problem.prompt, filled(self.spec.template, prompt=prompt, solution=solution_of(problem)))
