"""Worked demonstrations before the prompt and, where asked for, the reference solution inside it.

With the student's own frozen weights as teacher this is on-policy self-distillation with privileged information.
"""

from __future__ import annotations

from potstill.contracts.context import DemonstrationsContext
from potstill.contracts.problem import Message, Problem
from services.rollout.contexts.context import Context, filled, solution_of


class Demonstrations(Context):
    def __init__(self, spec: DemonstrationsContext) -> None:
        self.spec = spec

    async def messages(self, problem: Problem, response: str) -> tuple[Message, ...]:
        *earlier, last = problem.prompt
        system = [message for message in earlier if message.role == "system"]
        rest = [message for message in earlier if message.role != "system"]
        shown = [
            message
            for demonstration in self.spec.demonstrations
            for message in (Message("user", demonstration.prompt), Message("assistant", demonstration.response))
        ]
        return (*system, *shown, *rest, Message(last.role, self._last(problem, last.content)))

    def _last(self, problem: Problem, prompt: str) -> str:
        if not self.spec.solution:
            return prompt
        return filled(self.spec.solution_template, prompt=prompt, solution=solution_of(problem))
