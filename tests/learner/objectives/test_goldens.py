"""The learner's gradient against a dense float64 implementation, on a real tiny model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from learner.batch import step_batch
from learner.model import Student
from learner.objectives import resolve
from learner.report import Stopwatch
from learner.update import accumulate_gradients
from potstill.contracts.objective import ObjectiveSpec
from potstill.contracts.trajectory import TrajectoryGroup
from tests.learner import dense
from tests.learner.groups import random_groups

CAP = 3.0


def gradient(student: Student, groups: list[TrajectoryGroup], spec: ObjectiveSpec, *, tokens: int = 64) -> torch.Tensor:
    """The step's gradient as one vector; `tokens` is the budget of a micro-batch."""
    objective = resolve(spec)
    batch = step_batch(groups, objective, tokens)
    student.model.zero_grad()
    accumulate_gradients(student, batch, objective, 0.7, stopwatch=Stopwatch(), check=lambda: None)
    return flat(student)


def flat(student: Student) -> torch.Tensor:
    return torch.cat([p.grad.reshape(-1).double() for p in student.trainable() if p.grad is not None])


def dense_gradient(student: Student, groups: list[TrajectoryGroup], **options: Any) -> torch.Tensor:
    model = student.model.double()
    model.zero_grad()
    logits_of: dense.Logits = lambda ids: model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]  # noqa: E731
    dense.loss(groups, logits_of, temperature=0.7, cap=CAP, **options).backward()
    expected = flat(student)
    model.float()
    return expected


@pytest.mark.parametrize("preset", ["opd", "opdvr"])
@pytest.mark.parametrize("importance", ["off", "token", "sequence"])
def test_gradient_equals_the_dense_one(student: Student, preset: Any, importance: Any) -> None:
    groups = random_groups(3)
    spec = ObjectiveSpec(preset=preset, importance=importance, importance_cap=CAP)
    expected = dense_gradient(student, groups, gated=preset == "opdvr", importance=importance)
    assert expected.norm() > 0.1
    torch.testing.assert_close(gradient(student, groups, spec), expected, rtol=2e-3, atol=2e-5 * expected.norm().item())


def test_gate_can_be_chosen_over_the_preset(student: Student) -> None:
    groups = random_groups(4)
    overridden = gradient(student, groups, ObjectiveSpec(preset="opd", gate="correctness"))
    assert torch.equal(overridden, gradient(student, groups, ObjectiveSpec(preset="opdvr")))
    assert not torch.equal(overridden, gradient(student, groups, ObjectiveSpec(preset="opd")))
