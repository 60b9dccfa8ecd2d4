"""Trajectory groups made of plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    reference: Sequence[float] | None = None,
    candidates: Sequence[Sequence[int]] | None = None,
    candidate_teacher: Sequence[Sequence[float]] | None = None,
    score: float | None = 1.0,
    version: int = 0,
    finish: FinishReason = FinishReason.STOP,
    answer: str | None = None,
) -> Trajectory:
    """One sample; teacher and behaviour values that are not given are -1 at every token."""
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
        reference_logprobs=None if reference is None else LogProbs.of(reference),
        candidate_ids=None if candidates is None else TokenIds.of(candidates),
        candidate_teacher_logprobs=None if candidate_teacher is None else LogProbs.of(candidate_teacher),
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


def random_groups(
    seed: int, *, count: int = 5, n: int = 3, longest: int = 9, num_candidates: int = 4
) -> list[TrajectoryGroup]:
    """Groups with ragged prompts and responses, two teachers, and scores of all three sorts.

    Some reference values, some candidates and some of their values are missing.
    """
    generator = np.random.default_rng(seed)
    apart = np.random.default_rng([seed, 1])  # so that a new kind of value leaves the others as they are
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
                    reference=np.where(apart.random(length) < 0.1, np.nan, -apart.exponential(3.0, length)).tolist(),
                    **_random_candidates(apart, length, num_candidates),
                )
            )
        prompt = generator.integers(3, 250, int(generator.integers(1, 8))).tolist()
        groups.append(group(samples, prompt=prompt, slot=slot, teacher=["maths", "code"][slot % 2]))
    return groups


def _random_candidates(generator: np.random.Generator, length: int, width: int) -> dict[str, Any]:
    """The teacher's values are those of a distribution; a tenth of the candidates is absent, another has no value."""
    ids = np.stack([generator.choice(np.arange(3, 250), width, replace=False) for _ in range(length)])
    values = np.log(generator.dirichlet(np.ones(width + 1), length)[:, :width].clip(1e-4))
    fate = generator.random(ids.shape)
    return {
        "candidates": np.where(fate < 0.1, -1, ids),
        "candidate_teacher": np.where(fate < 0.2, [[np.nan], [-np.inf]][length % 2], values),
    }
