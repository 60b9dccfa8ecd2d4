"""A Jinja template makes the last message of the teacher's prompt."""

from __future__ import annotations

from potstill.contracts.context import TemplateContext
from potstill.contracts.problem import Message, Problem
from potstill.contracts.prompt_template import PromptTemplateError
from services.rollout.contexts.context import Context, with_last
from services.rollout.errors import Reason, TicketError


class Template(Context):
    def __init__(self, spec: TemplateContext) -> None:
        self._template = spec.compiled
        self.reads_response = "response" in self._template.names

    async def messages(self, problem: Problem, response: str) -> tuple[Message, ...]:
        values = {
            "prompt": problem.prompt[-1].content,
            "messages": [{"role": message.role, "content": message.content} for message in problem.prompt],
            "response": response,
            "solution": problem.solution,
            "reference": problem.reference,
            "id": problem.id,
            "data_source": problem.data_source,
            "kind": problem.kind,
        }
        try:
            return with_last(problem.prompt, self._template.render(values))
        except PromptTemplateError as error:
            message = f"the template of row {problem.id}'s teacher {error}"
            raise TicketError(Reason.TEMPLATE, message) from error
