"""Steps in which something is missing or nothing can be learned: finite, counted and told."""

from __future__ import annotations

import math

import pytest
import torch

from learner import report
from learner.batch import step_batch
from learner.model import Student
from learner.optimizer import StudentOptimizer
from potstill.contracts.generation import FinishReason
from potstill.contracts.job import TrainingSpec
from potstill.contracts.objective import ObjectiveSpec
from potstill.contracts.trajectory import TrajectoryGroup
from potstill.contracts.wire import JSON, decode, encode
from tests.learner.groups import group, sample
from tests.learner.objectives.test_goldens import flat, objective_of, run

EVERY_KIND = [
    ObjectiveSpec(preset="opd"),
    ObjectiveSpec(preset="exopd", reference_kl="k3"),
    ObjectiveSpec(preset="grpd", baseline="mean", aggregation="sequence_mean_token_mean"),
    ObjectiveSpec(preset="topk-opd"),
    ObjectiveSpec(preset="topk-opd", divergence="jsd", entropy_weight=0.1),
]
KINDS = pytest.mark.parametrize("spec", EVERY_KIND, ids=["opd", "exopd", "grpd", "topk", "jsd"])


def first_step(student: Student, groups: list[TrajectoryGroup], spec: ObjectiveSpec) -> dict[str, float | None]:
    """All numbers of the first step, whose gradient must be finite and whose update must leave finite weights."""
    objective = objective_of(spec)
    statistics = run(student, groups, objective, tokens=16)
    assert flat(student).isfinite().all()
    update = StudentOptimizer(student.trainable(), TrainingSpec(lr=1e-3)).step(1)
    assert not update.skipped
    assert all(parameter.isfinite().all() for parameter in student.trainable())
    return (
        report.sample_numbers(1, groups, objective)
        | report.batch_numbers(step_batch(groups, objective, 16))
        | statistics.numbers()
        | report.update_numbers(update)
    )


@KINDS
def test_prompts_of_different_length_padded_with_minus_infinity(student: Student, spec: ObjectiveSpec) -> None:
    infinite = -math.inf
    ragged = [
        group(
            [
                sample(
                    [5, 6, 7],
                    teacher=[-0.5, infinite, infinite],
                    reference=[-1.0, infinite, infinite],
                    candidates=[[5, 9], [6, 9], [7, 9]],
                    candidate_teacher=[[-0.5, -1.5], [infinite, -1.0], [infinite, infinite]],
                ),
                sample([8], reference=[-2.0], candidates=[[8, -1]], candidate_teacher=[[-0.1, math.nan]], score=0.0),
            ],
            prompt=prompt,
            slot=slot,
        )
        for slot, prompt in enumerate([[1, 5], [1, 5, 6, 7, 8, 9]])
    ]
    numbers = first_step(student, ragged, spec)
    assert numbers["loss"] is not None
    assert math.isfinite(numbers["loss"])
    assert numbers["missing_teacher_tokens"] == 4
    assert numbers["missing_reference_tokens"] == (4 if spec.preset == "exopd" else 0)
    assert numbers["missing_candidate_values"] == (6 if spec.preset == "topk-opd" else 0)


@KINDS
def test_every_completion_cut_at_the_length_limit(student: Student, spec: ObjectiveSpec) -> None:
    cut = [
        group(
            [
                sample(
                    [5, 6],
                    reference=[-1.0, -1.0],
                    candidates=[[5], [6]],
                    candidate_teacher=[[-1.0], [-1.0]],
                    score=score,
                    finish=FinishReason.LENGTH,
                )
                for score in (0.0, 0.0, None)
            ]
        )
    ]
    numbers = first_step(student, cut, spec)
    assert numbers["truncated_share"] == 1.0
    assert any("max_tokens" in alert for alert in report.alerts(1, numbers))


@KINDS
def test_a_micro_batch_in_which_every_token_is_masked(student: Student, spec: ObjectiveSpec) -> None:
    nothing = [math.nan] * 16
    masked = group([sample([9] * 16, teacher=nothing, behaviour=nothing, score=None)], slot=1)
    usual = group(
        [
            sample([5, 6], reference=[-2.0, -1.0], candidates=[[7], [8]], candidate_teacher=[[-1.0], [-2.0]], score=s)
            for s in (1.0, 0.0)
        ]
    )
    without_entropy = spec.model_copy(update={"entropy_weight": 0.0})  # entropy is the student's own affair
    objective = objective_of(without_entropy)
    assert len(step_batch([usual, masked], objective, 16).micro_batches) == 2
    run(student, [usual], objective, tokens=16)
    alone = flat(student)
    run(student, [usual, masked], objective, tokens=16)
    assert alone.norm() > 0
    assert torch.equal(flat(student), alone)
    numbers = first_step(student, [masked], spec)
    assert numbers["counted_tokens"] == 0
    assert any("no token" in alert for alert in report.alerts(1, numbers))


def test_null_among_the_values_on_the_wire_is_masked_and_counted(student: Student) -> None:
    whole = group([sample([10, 11, 12], teacher=[-0.5, math.nan, -0.7])])
    sent = encode(whole, JSON)
    assert b"[-0.5,null," in sent
    received = decode(sent, TrajectoryGroup, JSON)
    numbers = first_step(student, [received], ObjectiveSpec(importance="off"))
    assert numbers["missing_teacher_tokens"] == 1
    assert numbers["counted_tokens"] == 2
    assert numbers["teacher_logprob"] == pytest.approx(-0.6, abs=1e-6)
