"""Worked demonstrations before the prompt and, where asked for, the reference solution inside it.

With the student's own frozen weights as teacher this is on-policy self-distillation with privileged information.
"""

from __future__ import annotations

from potstill.contracts.job import DemonstrationsContext
from potstill.contracts.problem import Message, Problem
from services.rollout.errors import TicketError


def demonstrations(context: DemonstrationsContext, problem: Problem) -> tuple[Message, ...]:
    *earlier, last = problem.prompt
    system = [message for message in earlier if message.role == "system"]
    rest = [message for message in earlier if message.role != "system"]
    shown = [
        message
        for demonstration in context.demonstrations
        for message in (Message("user", demonstration.prompt), Message("assistant", demonstration.response))
    ]
    return (*system, *shown, *rest, Message(last.role, _with_solution(context, problem, last.content)))


def _with_solution(context: DemonstrationsContext, problem: Problem, prompt: str) -> str:
    if not context.solution:
        return prompt
    if problem.solution is None:
        raise TicketError(f"row {problem.id} has no solution, but its teacher's context shows one (context.solution)")
    return context.solution_template.replace("{solution}", problem.solution).replace("{prompt}", prompt)
