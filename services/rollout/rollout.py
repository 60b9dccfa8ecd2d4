"""One ticket, start to end: render, generate, then score and verify at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.generation import GenerateRequest, Prompt, Sample
from potstill.contracts.scoring import ScoreRequest, Sequence
from potstill.contracts.ticket import Ticket
from potstill.contracts.trajectory import Timings, Trajectory, TrajectoryGroup
from potstill.contracts.verification import VerifyItem, VerifyRequest, VerifyResult
from potstill.service.peers import Peer
from services.rollout.errors import TicketError
from services.rollout.patience import patiently
from services.rollout.rendering import Renderer

A = TypeVar("A")
B = TypeVar("B")
VERIFY_ATTEMPTS = 2  # trouble is no verdict: ask again once, then carry it as such


@dataclass(frozen=True)
class Peers:
    """The services of one lane."""

    student: Peer
    teachers: dict[str, Peer]
    verifier: Peer


@dataclass(frozen=True)
class Scores:
    """What the teacher said of each sample, and how long it took."""

    teacher: list[LogProbs | None]
    seconds: float


async def roll_out(ticket: Ticket, renderer: Renderer, peers: Peers, worker: str) -> TrajectoryGroup:
    """Fulfil a ticket.

    Raises TicketError when it never can be, PeerRefusedError when a service refuses it.
    """
    begun = time.time()
    prompt = renderer.student_prompt(ticket.problem)
    samples = await _generate(ticket, prompt, peers)
    generated = time.time()
    texts = [renderer.text(sample.token_ids) for sample in samples]
    scores, (results, verify_seconds) = await _together(
        _score(ticket, renderer, samples, peers), _verify(ticket, texts, peers)
    )
    return TrajectoryGroup(
        ticket=ticket.id,
        problem_id=ticket.problem.id,
        teacher=ticket.teacher,
        prompt_token_ids=prompt,
        trajectories=tuple(
            _trajectory(sample, text, logprobs, result)
            for sample, text, logprobs, result in zip(samples, texts, scores.teacher, results, strict=True)
        ),
        issued_at=ticket.issued_at,
        completed_at=time.time(),
        worker=worker,
        timings=Timings(
            queued=max(0.0, begun - ticket.issued_at),
            generate=generated - begun,
            score=scores.seconds,
            verify=verify_seconds,
        ),
    )


async def _together(scoring: Coroutine[Any, Any, A], verifying: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Both results; the first failure cancels the other and is raised as it is."""
    tasks = asyncio.create_task(scoring), asyncio.create_task(verifying)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _generate(ticket: Ticket, prompt: TokenIds, peers: Peers) -> tuple[Sample, ...]:
    request = GenerateRequest(
        prompts=(Prompt(prompt, n=ticket.n, seed=ticket.seed),), sampling=ticket.sampling, policy=ticket.policy
    )
    response = await patiently("student", lambda: peers.student.generate(request))
    return response.prompts[0].samples


async def _score(ticket: Ticket, renderer: Renderer, samples: tuple[Sample, ...], peers: Peers) -> Scores:
    if ticket.teacher is None:
        return Scores([None] * len(samples), 0.0)
    teacher = peers.teachers.get(ticket.teacher)
    if teacher is None:
        raise TicketError(f"this worker knows no teacher {ticket.teacher} (POTSTILL_TEACHERS)")
    prompt = renderer.teacher_prompt(ticket.teacher, ticket.problem)
    request = ScoreRequest(
        sequences=tuple(Sequence(prompt, sample.token_ids) for sample in samples),
        temperature=renderer.spec.teachers[ticket.teacher].temperature,
    )
    begun = time.perf_counter()
    response = await patiently("teacher", lambda: teacher.score(request))
    return Scores([score.logprobs for score in response.sequences], time.perf_counter() - begun)


async def _verify(ticket: Ticket, texts: list[str], peers: Peers) -> tuple[list[VerifyResult], float]:
    problem = ticket.problem
    items = [
        VerifyItem(str(i), problem.kind, text, problem.reference, problem.tests, problem.function)
        for i, text in enumerate(texts)
    ]
    begun = time.perf_counter()
    results: dict[str, VerifyResult] = {}
    for _attempt in range(VERIFY_ATTEMPTS):
        request = VerifyRequest(tuple(items))
        response = await patiently("verifier", lambda request=request: peers.verifier.verify(request))  # type: ignore[misc]
        results |= {result.id: result for result in response.results}
        items = [item for item in items if not results[item.id].verdict.is_score]
        if not items:
            break
    return [results[str(i)] for i in range(len(texts))], time.perf_counter() - begun


def _trajectory(sample: Sample, text: str, teacher: LogProbs | None, result: VerifyResult) -> Trajectory:
    return Trajectory(
        token_ids=sample.token_ids,
        behaviour_logprobs=sample.logprobs,
        finish_reason=sample.finish_reason,
        policy_version=sample.policy_version,
        text=text,
        verdict=result.verdict,
        score=result.score,
        teacher_logprobs=teacher,
    )


def tombstone(ticket: Ticket, reason: str, worker: str) -> TrajectoryGroup:
    """The group that stands for a ticket given up."""
    return TrajectoryGroup(
        ticket=ticket.id,
        problem_id=ticket.problem.id,
        teacher=ticket.teacher,
        prompt_token_ids=TokenIds.of([]),
        trajectories=(),
        issued_at=ticket.issued_at,
        completed_at=time.time(),
        worker=worker,
        tombstone=reason,
    )
