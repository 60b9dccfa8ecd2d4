"""Reading a prompt once gives what reading it with every sample gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from learner.batch import step_batch
from learner.model import Student, load_student
from learner.objectives import resolve
from learner.report import Stopwatch
from learner.update import accumulate_gradients
from potstill.contracts.job import LoraSpec, StudentSpec
from potstill.contracts.objective import ObjectiveSpec
from potstill.contracts.trajectory import TrajectoryGroup
from tests.learner.groups import group, random_groups, sample

CPU = torch.device("cpu")


def update(
    student: Student, groups: list[TrajectoryGroup], spec: ObjectiveSpec, tokens: int, *, share: bool
) -> tuple[torch.Tensor, dict[str, float | None]]:
    """Gradient and numbers of a step."""
    objective = resolve(spec)
    batch = step_batch(groups, objective, tokens, share_prompts=share)
    assert share is any(micro.inputs.branch_ids_NT.numel() > 0 for micro in batch.micro_batches)
    student.model.zero_grad()
    numbers = accumulate_gradients(student, batch, objective, 0.7, stopwatch=Stopwatch(), check=lambda: None).numbers()
    return torch.cat([p.grad.reshape(-1) for p in student.trainable() if p.grad is not None]), numbers


def long_prompts(seed: int) -> list[TrajectoryGroup]:
    """Ragged prompts and responses, one of a single token."""
    ragged = random_groups(seed, n=4)
    return [
        *(group(g.trajectories, prompt=[*range(3, 30 + 2 * g.ticket.slot)], slot=g.ticket.slot) for g in ragged),
        group([sample([7]), sample([8])], prompt=range(5, 50), slot=9),
    ]


@pytest.mark.parametrize("tokens", [70, 10_000], ids=["groups cut", "one micro-batch"])
@pytest.mark.parametrize(
    "spec", [ObjectiveSpec(entropy_weight=0.1), ObjectiveSpec(preset="topk-opd")], ids=["policy gradient", "divergence"]
)
def test_the_gradient_and_the_numbers_are_those_of_whole_rows(
    student: Student, spec: ObjectiveSpec, tokens: int
) -> None:
    groups = long_prompts(1)
    shared, numbers = update(student, groups, spec, tokens, share=True)
    whole, expected = update(student, groups, spec, tokens, share=False)
    torch.testing.assert_close(shared, whole, atol=1e-5 * whole.norm().item(), rtol=1e-4)
    assert numbers.keys() == expected.keys()
    for name, value in expected.items():
        assert numbers[name] == (value if value is None else pytest.approx(value, abs=1e-4, rel=1e-4)), name


def test_it_is_the_same_bit_for_bit_every_time(student: Student) -> None:
    first, again = (update(student, long_prompts(2), ObjectiveSpec(), 400, share=True)[0] for _ in range(2))
    assert torch.equal(first, again)


def test_adapters_read_a_prompt_once_too(student_folder: Path) -> None:
    adapted = load_student(StudentSpec(model=str(student_folder), lora=LoraSpec(rank=4, alpha=8)), seed=0, device=CPU)
    assert adapted.shares_prompts
    shared, whole = (update(adapted, long_prompts(3), ObjectiveSpec(), 400, share=share)[0] for share in (True, False))
    torch.testing.assert_close(shared, whole, atol=1e-5 * whole.norm().item(), rtol=1e-4)


def test_a_student_shares_prompts_unless_activations_are_computed_again(student_folder: Path) -> None:
    spec = StudentSpec(model=str(student_folder))
    assert load_student(spec, seed=0, device=CPU).shares_prompts
    assert not load_student(spec, seed=0, device=CPU, gradient_checkpointing=True).shares_prompts
