from __future__ import annotations

import io
import math

import pytest
import torch

from learner.errors import JobError
from learner.optimizer import StudentOptimizer, learning_rate
from potstill.contracts.job import TrainingSpec


def rates(**options: object) -> list[float]:
    spec = TrainingSpec(lr=1.0, steps=10, **options)  # type: ignore[arg-type]
    return [learning_rate(spec, step) for step in range(1, spec.steps + 1)]


def test_warm_up_is_linear_and_reaches_the_rate() -> None:
    assert rates(warmup_steps=4)[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_constant_stays_and_the_others_fall_towards_zero() -> None:
    assert rates() == [1.0] * 10
    assert rates(schedule="linear") == pytest.approx([1 - i / 10 for i in range(10)])
    assert rates(schedule="cosine") == pytest.approx([(1 + math.cos(math.pi * i / 10)) / 2 for i in range(10)])
    falling = rates(schedule="cosine", warmup_steps=3)
    assert falling[3] == 1.0
    assert falling[4:] == sorted(falling[4:], reverse=True)


def parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor([1.0, 2.0]))


def test_gradient_is_clipped_and_its_norm_reported() -> None:
    weight = parameter()
    optimizer = StudentOptimizer([weight], TrainingSpec(lr=0.1, clip_norm=1.0))
    weight.grad = torch.tensor([30.0, 40.0])
    update = optimizer.step(1)
    assert update.gradient_norm == pytest.approx(50.0)
    assert weight.grad is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing_and_fails_the_job_in_the_end(bad: float) -> None:
    weight = parameter()
    optimizer = StudentOptimizer([weight], TrainingSpec(lr=0.1, max_nonfinite_steps=2))
    before = weight.detach().clone()
    weight.grad = torch.tensor([bad, 1.0])
    assert optimizer.step(1).skipped
    assert torch.equal(weight, before)
    weight.grad = torch.tensor([1.0, 1.0])  # a good one in between starts the count again
    assert not optimizer.step(2).skipped
    weight.grad = torch.tensor([bad, 1.0])
    optimizer.step(3)
    weight.grad = torch.tensor([bad, 1.0])
    with pytest.raises(JobError) as caught:
        optimizer.step(4)
    assert caught.value.code == "gradient_not_finite"


def test_state_survives_a_round_trip_without_pickled_code() -> None:
    spec = TrainingSpec(lr=0.1)
    first, second = parameter(), parameter()
    original, restored = StudentOptimizer([first], spec), StudentOptimizer([second], spec)
    first.grad = torch.tensor([0.3, -0.2])
    original.step(1)
    file = io.BytesIO()
    torch.save(original.state(), file)
    file.seek(0)
    restored.load(torch.load(file, weights_only=True))
    second.data.copy_(first.data)
    for weight, optimizer in ((first, original), (second, restored)):
        weight.grad = torch.tensor([0.1, 0.7])
        optimizer.step(2)
    assert torch.equal(first, second)
