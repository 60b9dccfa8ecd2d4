"""Trajectory groups made of plain lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.generation import FinishReason
from potstill.contracts.ticket import Phase, TicketId
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup
from potstill.contracts.verification import Verdict

JOB = "job_a"


def sample(
    ids: Sequence[int],
    *,
    teacher: Sequence[float] | None = None,
    behaviour: Sequence[float] | None = None,
    score: float | None = 1.0,
    version: int = 0,
    finish: FinishReason = FinishReason.STOP,
    answer: str | None = None,
) -> Trajectory:
    """One sample; values that are not given are -1 at every token."""
    constant = [-1.0] * len(ids)
    verdict = Verdict.UNDETERMINED if score is None else Verdict.ACCEPTED if score > 0 else Verdict.WRONG_ANSWER
    return Trajectory(
        token_ids=TokenIds.of(ids),
        behaviour_logprobs=LogProbs.of(constant if behaviour is None else behaviour),
        finish_reason=finish,
        policy_version=version,
        text="",
        verdict=verdict,
        score=score,
        teacher_logprobs=LogProbs.of(constant if teacher is None else teacher),
        answer=answer,
    )


def group(
    samples: Sequence[Trajectory],
    *,
    prompt: Sequence[int] = (1, 5, 6),
    step: int = 1,
    slot: int = 0,
    teacher: str | None = "maths",
    phase: Phase = Phase.TRAIN,
    tombstone: str | None = None,
) -> TrajectoryGroup:
    return TrajectoryGroup(
        ticket=TicketId(JOB, phase, step, slot),
        problem_id=f"p{slot}",
        teacher=teacher,
        prompt_token_ids=TokenIds.of(prompt),
        trajectories=tuple(samples),
        issued_at=0.0,
        completed_at=1.0,
        worker="test",
        tombstone=tombstone,
    )


def random_groups(seed: int, *, count: int = 5, n: int = 3, longest: int = 9) -> list[TrajectoryGroup]:
    """Groups with ragged prompts and responses, two teachers, and scores of all three sorts."""
    generator = np.random.default_rng(seed)
    groups = []
    for slot in range(count):
        samples = []
        for _ in range(n):
            length = int(generator.integers(1, longest))
            samples.append(
                sample(
                    generator.integers(3, 250, length).tolist(),
                    teacher=(-generator.exponential(3.0, length)).tolist(),
                    behaviour=(-generator.exponential(4.0, length)).tolist(),
                    score=[0.0, 1.0, None][int(generator.integers(3))],
                )
            )
        prompt = generator.integers(3, 250, int(generator.integers(1, 8))).tolist()
        groups.append(group(samples, prompt=prompt, slot=slot, teacher=["maths", "code"][slot % 2]))
    return groups
