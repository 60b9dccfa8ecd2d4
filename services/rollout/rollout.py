"""One ticket, start to end: render, generate, then score and verify at the same time."""

from __future__ import annotations

import time
from dataclasses import dataclass

from potstill.contracts.arrays import TokenIds
from potstill.contracts.generation import GenerateRequest, Prompt, Sample
from potstill.contracts.ticket import Ticket
from potstill.contracts.trajectory import Timings, Trajectory, TrajectoryGroup
from potstill.contracts.verification import VerifyItem, VerifyRequest, VerifyResult
from potstill.service.peers import Peer, PeerRefusedError
from services.rollout.errors import Reason, TicketError
from services.rollout.patience import patiently
from services.rollout.rendering import Renderer
from services.rollout.scoring import Opinion, Response, Scorer
from services.rollout.together import together

VERIFY_ATTEMPTS = 2  # trouble is no verdict: ask again once, then carry it as such
NEVER_FITS = 413  # what a service answers that will not take this, however often it is asked


@dataclass(frozen=True)
class Peers:
    """The services of one lane."""

    student: Peer
    teachers: dict[str, Peer]
    verifier: Peer


async def roll_out(ticket: Ticket, renderer: Renderer, peers: Peers, worker: str) -> TrajectoryGroup:
    """Fulfil a ticket.

    Raises TicketError when it never can be, PeerRefusedError when a service refuses it.
    """
    try:
        return await _roll_out(ticket, renderer, peers, worker)
    except PeerRefusedError as error:
        if error.status == NEVER_FITS:
            raise TicketError(Reason.TOO_LONG, f"row {ticket.problem.id} does not fit: {error}") from error
        raise


async def _roll_out(ticket: Ticket, renderer: Renderer, peers: Peers, worker: str) -> TrajectoryGroup:
    begun = time.time()
    prompt = renderer.student_prompt(ticket.problem)
    samples = await _generate(ticket, prompt, renderer, peers)
    generated = time.time()
    texts = [renderer.text(sample.token_ids) for sample in samples]
    responses = [Response(sample, text) for sample, text in zip(samples, texts, strict=True)]
    scorer = Scorer(renderer, peers.teachers, ticket.problem, responses)
    (opinions, score_seconds), (results, verify_seconds) = await together(
        scorer.opinions(ticket.teacher), _verify(ticket, texts, peers)
    )
    return TrajectoryGroup(
        ticket=ticket.id,
        problem_id=ticket.problem.id,
        teacher=ticket.teacher,
        prompt_token_ids=prompt,
        trajectories=tuple(
            _trajectory(response, opinion, result)
            for response, opinion, result in zip(responses, opinions, results, strict=True)
        ),
        issued_at=ticket.issued_at,
        completed_at=time.time(),
        worker=worker,
        timings=Timings(
            queued=max(0.0, begun - ticket.issued_at),
            generate=generated - begun,
            score=score_seconds,
            verify=verify_seconds,
        ),
    )


async def _generate(ticket: Ticket, prompt: TokenIds, renderer: Renderer, peers: Peers) -> tuple[Sample, ...]:
    """The samples, with the student's own candidates where a teacher is to score them."""
    request = GenerateRequest(
        prompts=(Prompt(prompt, n=ticket.n, seed=ticket.seed),),
        sampling=ticket.sampling,
        policy=ticket.policy,
        top_k=renderer.spec.resolved_objective.asks_student_top_k if ticket.teacher is not None else 0,
    )
    response = await patiently("student", lambda: peers.student.generate(request))
    return response.prompts[0].samples


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


def _trajectory(response: Response, opinion: Opinion, result: VerifyResult) -> Trajectory:
    sample, candidates = response.sample, opinion.candidates
    return Trajectory(
        token_ids=sample.token_ids,
        behaviour_logprobs=sample.logprobs,
        finish_reason=sample.finish_reason,
        policy_version=sample.policy_version,
        text=response.text,
        verdict=result.verdict,
        score=result.score,
        teacher_logprobs=opinion.teacher,
        reference_logprobs=opinion.reference,
        candidate_ids=None if candidates is None else candidates.ids,
        candidate_teacher_logprobs=None if candidates is None else candidates.logprobs,
        answer=result.detail.get("answer"),
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
