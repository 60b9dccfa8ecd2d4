"""What the row's own teacher, and that teacher's reference where the objective needs one, say of each sample."""

from __future__ import annotations

import time
from dataclasses import dataclass

from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.generation import Sample
from potstill.contracts.problem import Problem
from potstill.contracts.scoring import ScoreRequest, Sequence, SequenceScore
from potstill.service.peers import Peer
from services.rollout.candidates import Candidates, askable, united
from services.rollout.errors import Reason, TicketError
from services.rollout.patience import patiently
from services.rollout.rendering import Renderer
from services.rollout.together import together


@dataclass(frozen=True)
class Opinion:
    """Of one sample. T is its number of response tokens."""

    teacher: LogProbs | None = None  # [T]
    reference: LogProbs | None = None  # [T]
    candidates: Candidates | None = None


@dataclass(frozen=True)
class Response:
    """A sample, and its text."""

    sample: Sample
    text: str


@dataclass(frozen=True)
class Scorer:
    """Asks for one ticket."""

    renderer: Renderer
    teachers: dict[str, Peer]
    problem: Problem
    responses: list[Response]

    async def opinions(self, teacher: str | None) -> tuple[list[Opinion], float]:
        """One for each sample, and the seconds it took. Raises TicketError or PeerRefusedError."""
        if teacher is None:
            return [Opinion() for _ in self.responses], 0.0
        begun = time.perf_counter()
        scores, references = await together(self._teacher(teacher), self._reference(teacher))
        opinions = [
            Opinion(score.logprobs, reference, self._candidates(response.sample, score))
            for response, score, reference in zip(self.responses, scores, references, strict=True)
        ]
        return opinions, time.perf_counter() - begun

    async def _teacher(self, name: str) -> tuple[SequenceScore, ...]:
        objective = self.renderer.spec.resolved_objective
        return await self._ask(name, objective.asks_teacher_top_k, with_candidates=objective.asks_student_top_k > 0)

    async def _reference(self, teacher: str) -> list[LogProbs | None]:
        name = self.renderer.spec.reference_of(teacher)
        if name is None:
            return [None] * len(self.responses)
        return [score.logprobs for score in await self._ask(name, 0, with_candidates=False)]

    async def _ask(self, name: str, top_k: int, *, with_candidates: bool) -> tuple[SequenceScore, ...]:
        peer = self.teachers.get(name)
        if peer is None:
            message = f"this worker knows no teacher {name} (POTSTILL_TEACHERS)"
            raise TicketError(Reason.TEACHER_UNKNOWN, message)
        texts = [response.text for response in self.responses]
        prompts = await self.renderer.teacher_prompts(name, self.problem, texts)
        asked = [self._asked(response.sample) if with_candidates else None for response in self.responses]
        request = ScoreRequest(
            sequences=tuple(
                Sequence(prompt, response.sample.token_ids, candidates)
                for prompt, response, candidates in zip(prompts, self.responses, asked, strict=True)
            ),
            temperature=self.renderer.spec.teachers[name].temperature,
            top_k=top_k,
        )
        return (await patiently("teacher", lambda: peer.score(request))).sequences

    def _asked(self, sample: Sample) -> TokenIds:
        assert sample.top_ids is not None, "the student was asked for them"
        return askable(sample.top_ids, self.renderer.num_ids)

    def _candidates(self, sample: Sample, score: SequenceScore) -> Candidates | None:
        objective = self.renderer.spec.resolved_objective
        mine = theirs = None
        if objective.asks_student_top_k:
            assert sample.top_ids is not None
            assert score.candidate_logprobs is not None
            mine = sample.top_ids, score.candidate_logprobs
        if objective.asks_teacher_top_k:
            assert score.top_ids is not None
            assert score.top_logprobs is not None
            theirs = score.top_ids, score.top_logprobs
        return united(mine, theirs, self.renderer.num_ids) if mine or theirs else None
