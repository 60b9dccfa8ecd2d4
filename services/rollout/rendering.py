"""Text to token ids, once. From here on ids are the only currency."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from transformers import AutoTokenizer

from potstill.contracts.arrays import TokenIds
from potstill.contracts.job import JobSpec
from potstill.contracts.problem import Message, Problem
from services.rollout.contexts import context_of
from services.rollout.errors import Reason, TicketError
from services.rollout.together import all_of


class Renderer:
    """Prompts of one job. The student's tokenizer serves all: teachers with another one are refused at submission."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self._tokenizer: Any = AutoTokenizer.from_pretrained(spec.student.model)
        self._contexts = {name: context_of(teacher.context) for name, teacher in spec.teachers.items()}

    async def close(self) -> None:
        """Let go of what the contexts hold."""
        for context in self._contexts.values():
            await context.close()

    @cached_property
    def num_ids(self) -> int:
        """Ids below this stand for text; rows of the model above it are padding."""
        return int(max(self._tokenizer.get_vocab().values())) + 1

    def student_prompt(self, problem: Problem) -> TokenIds:
        """Token ids [P] of what the student answers. Raises TicketError when it is too long."""
        ids = self._render(problem.prompt)
        limit = self.spec.sampling.max_prompt_tokens
        if limit is not None and len(ids) > limit:
            raise TicketError(
                Reason.TOO_LONG,
                f"the prompt of row {problem.id} has {len(ids)} tokens, more than sampling.max_prompt_tokens = {limit}",
            )
        return ids

    async def teacher_prompts(self, teacher: str, problem: Problem, responses: list[str]) -> list[TokenIds]:
        """Token ids [P] of what the teacher reads before each response.

        Raises TicketError when the row or its length does not fit.
        """
        context = self._contexts[teacher]
        distinct = list(dict.fromkeys(responses)) if context.reads_response else [""]
        built = await all_of([context.messages(problem, response) for response in distinct])
        prompts = [self._teacher_prompt(teacher, problem, messages) for messages in built]
        if not context.reads_response:
            return prompts * len(responses)
        by_response = dict(zip(distinct, prompts, strict=True))
        return [by_response[response] for response in responses]

    def text(self, token_ids: TokenIds) -> str:
        """A response as a person and the verifier read it."""
        decoded: str = self._tokenizer.decode(token_ids.tolist(), skip_special_tokens=True)
        return decoded

    def _teacher_prompt(self, teacher: str, problem: Problem, messages: tuple[Message, ...]) -> TokenIds:
        ids = self._render(messages)
        limit = self.spec.teachers[teacher].context.max_tokens
        if limit is not None and len(ids) > limit:
            raise TicketError(
                Reason.TOO_LONG,
                f"the prompt of teacher {teacher} for row {problem.id} has {len(ids)} tokens, "
                f"more than its context.max_tokens of {limit}",
            )
        return ids

    def _render(self, messages: tuple[Message, ...]) -> TokenIds:
        if self._tokenizer.chat_template is None:
            ids = self._tokenizer("\n".join(message.content for message in messages))["input_ids"]
        else:
            turns = [{"role": message.role, "content": message.content} for message in messages]
            ids = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        return TokenIds.of(ids)
