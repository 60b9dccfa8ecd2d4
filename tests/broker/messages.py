"""Small real messages."""

from __future__ import annotations

import time

from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.generation import FinishReason, PolicyRef, Sampling
from potstill.contracts.problem import Message, Problem
from potstill.contracts.ticket import Phase, Ticket, TicketId
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup
from potstill.contracts.verification import Verdict


def ticket(step: int = 1, slot: int = 0, *, phase: Phase = Phase.TRAIN, job: str = "job_a") -> Ticket:
    problem = Problem(id=f"p{slot}", prompt=(Message("user", "1 + 1?"),), reference="2")
    policy = PolicyRef(step - 1, "file:///policies/000000")
    return Ticket(TicketId(job, phase, step, slot), problem, 2, 7, policy, Sampling(), "maths", time.time())


def group(of: Ticket, *, worker: str = "w0") -> TrajectoryGroup:
    trajectory = Trajectory(
        token_ids=TokenIds.of([5, 6, 2]),
        behaviour_logprobs=LogProbs.of([-0.5, -0.25, -1.0]),
        finish_reason=FinishReason.STOP,
        policy_version=0,
        text="2",
        verdict=Verdict.ACCEPTED,
        score=1.0,
        teacher_logprobs=LogProbs.of([-0.1, None, -0.3]),
    )
    return TrajectoryGroup(
        ticket=of.id,
        problem_id=of.problem.id,
        teacher=of.teacher,
        prompt_token_ids=TokenIds.of([1, 2, 3]),
        trajectories=(trajectory, trajectory),
        issued_at=of.issued_at,
        completed_at=time.time(),
        worker=worker,
    )
