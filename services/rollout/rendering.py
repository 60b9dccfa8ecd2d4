"""Text to token ids, once. From here on ids are the only currency."""

from __future__ import annotations

from typing import Any

from transformers import AutoTokenizer

from potstill.contracts.arrays import TokenIds
from potstill.contracts.job import DemonstrationsContext, JobSpec
from potstill.contracts.problem import Message, Problem
from services.rollout.contexts import build_context
from services.rollout.errors import TicketError


class Renderer:
    """Prompts of one job. The student's tokenizer serves all: teachers with another one are refused at submission."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self._tokenizer: Any = AutoTokenizer.from_pretrained(spec.student.model)

    def student_prompt(self, problem: Problem) -> TokenIds:
        """Token ids [P] of what the student answers."""
        return self._render(problem.prompt)

    def teacher_prompt(self, teacher: str, problem: Problem) -> TokenIds:
        """Token ids [P] of what the teacher reads. Raises TicketError when the row or its length does not fit."""
        context = self.spec.teachers[teacher].context
        ids = self._render(build_context(context, problem))
        if isinstance(context, DemonstrationsContext) and len(ids) > context.max_tokens:
            raise TicketError(
                f"the prompt of teacher {teacher} for row {problem.id} has {len(ids)} tokens, "
                f"more than its context.max_tokens of {context.max_tokens}"
            )
        return ids

    def text(self, token_ids: TokenIds) -> str:
        """A response as a person and the verifier read it."""
        decoded: str = self._tokenizer.decode(token_ids.tolist(), skip_special_tokens=True)
        return decoded

    def _render(self, messages: tuple[Message, ...]) -> TokenIds:
        if self._tokenizer.chat_template is None:
            ids = self._tokenizer("\n".join(message.content for message in messages))["input_ids"]
        else:
            turns = [{"role": message.role, "content": message.content} for message in messages]
            ids = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        return TokenIds.of(ids)
