"""Whether a teacher that is the student agrees with it, through every service that a job goes through.

Tickets go to a real rollout worker, which asks the real student and a teacher with the same weights. What the two say
of one token differs by the engines alone; on-policy distillation trains on that difference, so it must be noise.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from potstill.broker import Broker
from potstill.broker.jobs import JobStore
from potstill.broker.tickets import TicketQueue
from potstill.broker.trajectories import TrajectoryStream
from potstill.contracts.generation import FinishReason, Sampling
from potstill.contracts.job import JobSpec, TeacherSpec
from potstill.contracts.objective import ObjectiveSpec
from potstill.contracts.problem import Problem
from potstill.contracts.ticket import Phase, Ticket, TicketId
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup
from potstill.local.stack import Stack, StackError

TEACHER = "self-check"
LANE = "default"
NUM_PROMPTS = 4
SAMPLES = 2
ANSWER_SECONDS = 600.0
# In float32 at every token, in bfloat16 in the mean: what rounding of one model in two engines comes to.
LARGEST_FLOAT32, MEAN_BFLOAT16 = 1e-3, 0.03


@dataclass(frozen=True)
class SelfCheck:
    """|d| in nats over all response positions."""

    dtype: str
    positions: int
    ends: int  # positions that hold an end token
    mean: float
    largest: float
    missing: int

    @property
    def passed(self) -> bool:
        if self.missing or not self.positions:
            return False
        return self.largest < LARGEST_FLOAT32 if self.dtype == "float32" else self.mean < MEAN_BFLOAT16


def self_check(stack: Stack, spec: JobSpec, problems: Sequence[Problem]) -> SelfCheck:
    """Run it on a stack that serves the student's model as the teacher `self-check`. Raises StackError."""
    groups = asyncio.run(_groups(stack, _checking(spec), problems[:NUM_PROMPTS]))
    samples = [sample for group in groups for sample in group.trajectories]
    difference = np.concatenate([_difference(sample) for sample in samples]) if samples else np.empty(0)
    known = np.abs(difference[np.isfinite(difference)])
    return SelfCheck(
        dtype=stack.spec.student_dtype,
        positions=len(difference),
        ends=sum(sample.finish_reason is FinishReason.STOP for sample in samples),
        mean=float(known.mean()) if known.size else 0.0,
        largest=float(known.max()) if known.size else 0.0,
        missing=len(difference) - known.size,
    )


def _checking(spec: JobSpec) -> JobSpec:
    """The job with its student as its only teacher."""
    itself = TeacherSpec(model=spec.student.model, temperature=spec.sampling.temperature)
    return spec.model_copy(update={"teachers": {TEACHER: itself}, "objective": ObjectiveSpec()})


def _difference(sample: Trajectory) -> NDArray[np.float32]:
    if sample.teacher_logprobs is None:
        return np.full(len(sample.token_ids), np.nan, np.float32)
    return np.subtract(sample.teacher_logprobs, sample.behaviour_logprobs, dtype=np.float32)


async def _groups(stack: Stack, spec: JobSpec, problems: Sequence[Problem]) -> list[TrajectoryGroup]:
    broker = Broker.connect(stack.redis_url, patient=False)
    job_id = f"job_selfcheck{secrets.token_hex(6)}"
    try:
        await JobStore(broker).create(job_id, spec.model_dump(mode="json", by_alias=True))
        stream = TrajectoryStream(broker, job_id)
        await TicketQueue(broker, LANE).issue(
            [_ticket(job_id, slot, problem, spec) for slot, problem in enumerate(problems)]
        )
        groups: list[TrajectoryGroup] = []
        deadline = time.monotonic() + ANSWER_SECONDS
        while len(groups) < len(problems):
            stack.check()
            groups += [received.group for received in await stream.new(block=500)]
            if time.monotonic() > deadline:
                raise StackError(f"the self-check had no answer after {ANSWER_SECONDS:.0f} s: {stack.artifacts}/logs")
    finally:
        await broker.close()
    dropped = [group.tombstone for group in groups if group.tombstone is not None]
    if dropped:
        raise StackError(f"the self-check could not sample or score {len(dropped)} of {len(groups)} rows: {dropped[0]}")
    return groups


def _ticket(job_id: str, slot: int, problem: Problem, spec: JobSpec) -> Ticket:
    sampling = Sampling(spec.sampling.temperature, spec.sampling.max_tokens, tuple(spec.sampling.stop_token_ids))
    name = TicketId(job_id, Phase.TRAIN, 1, slot)
    return Ticket(name, problem, SAMPLES, slot, None, sampling, TEACHER, time.time())
