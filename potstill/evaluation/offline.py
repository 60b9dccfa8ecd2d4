"""Sampling and verifying problems through the services of a running stack, by the path that training takes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from potstill.broker import Broker
from potstill.broker.jobs import JobStore
from potstill.broker.tickets import TicketQueue
from potstill.broker.trajectories import Received, TrajectoryStream
from potstill.contracts.generation import PolicyRef, Sampling
from potstill.contracts.job import JobSpec
from potstill.contracts.problem import Problem
from potstill.contracts.ticket import Phase, Ticket, TicketId
from potstill.contracts.trajectory import TrajectoryGroup
from potstill.seeds import derived_seed

LANE = "default"
TICKETS_AT_ONCE = 256  # in the queue: a task of code may have megabytes of tests
REISSUE_SECONDS = 5.0
BLOCK_MILLISECONDS = 500


@dataclass(frozen=True)
class Plan:
    """What to sample."""

    model: str  # folder or hub id of the tokenizer that renders the prompts
    problems: Sequence[Problem]
    n: int
    sampling: Sampling
    seed: int
    policy: PolicyRef | None = None  # None: the weights that the student has loaded


async def run_plan(
    redis_url: str,
    plan: Plan,
    take: Callable[[Problem, TrajectoryGroup], None],
    check: Callable[[], None] = lambda: None,
) -> None:
    """Have every problem answered; `take` gets each group once, as it comes.

    `check` runs at least twice a second, and what it raises ends the evaluation.
    """
    broker = Broker.connect(redis_url, patient=True)
    try:
        job_id = f"job_eval_{uuid.uuid4().hex[:12]}"
        await JobStore(broker).create(job_id, _record_of(plan))
        stream = TrajectoryStream(broker, job_id)
        await _collect(TicketQueue(broker, LANE), stream, _tickets(job_id, plan), take, check)
        await stream.discard()
    finally:
        await broker.close()


async def _collect(
    queue: TicketQueue,
    stream: TrajectoryStream,
    tickets: Sequence[Ticket],
    take: Callable[[Problem, TrajectoryGroup], None],
    check: Callable[[], None],
) -> None:
    """Tickets are written again every while, which does nothing unless the queue has lost them."""
    waiting = iter(tickets)
    asked: dict[TicketId, Ticket] = {}
    reissue_at = time.monotonic() + REISSUE_SECONDS
    while True:
        check()
        fresh = list(islice(waiting, TICKETS_AT_ONCE - len(asked)))
        await queue.issue(fresh)
        asked |= {ticket.id: ticket for ticket in fresh}
        if not asked:
            return
        received: list[Received] = []
        if time.monotonic() >= reissue_at:
            await queue.issue(list(asked.values()))
            received = await stream.pending()
            reissue_at = time.monotonic() + REISSUE_SECONDS
        received += await stream.new(block=BLOCK_MILLISECONDS)
        for answer in received:
            ticket = asked.pop(answer.group.ticket, None)
            if ticket is not None:
                take(ticket.problem, answer.group)
        await stream.acknowledge([answer.entry for answer in received])


def _tickets(job_id: str, plan: Plan) -> list[Ticket]:
    """A problem has the same seed whatever it is evaluated with, so that two models are compared like with like."""
    return [
        Ticket(
            id=TicketId(job_id, Phase.EVAL, 0, slot),
            problem=problem,
            n=plan.n,
            seed=derived_seed(plan.seed, "eval", problem.data_source, problem.id),
            policy=plan.policy,
            sampling=plan.sampling,
            teacher=None,
            issued_at=time.time(),
        )
        for slot, problem in enumerate(plan.problems)
    ]


def _record_of(plan: Plan) -> dict[str, object]:
    """What rollout workers look up of a job: its tokenizer. A spec names a teacher, which an evaluation never asks."""
    model = {"model": plan.model}
    spec = JobSpec.model_validate(
        {"name": "eval", "student": model, "teachers": {"none": model}, "data": {"train": "none"}}
    )
    return spec.model_dump(mode="json", by_alias=True)
