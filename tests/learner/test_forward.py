"""However samples lie before the decoder, the gradient and the numbers are those of whole rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from learner.batch import step_batch
from learner.layout import Inputs, supports
from learner.model import Student, load_student
from learner.objectives import resolve
from learner.packed import PackedRow, uses_blocks
from learner.packing import Layout
from learner.report import Stopwatch
from learner.update import accumulate_gradients
from potstill.contracts.job import LoraSpec, StudentSpec
from potstill.contracts.objective import ObjectiveSpec
from potstill.contracts.trajectory import TrajectoryGroup
from tests.learner.groups import group, random_groups, sample

CPU = torch.device("cpu")


def update(
    student: Student, groups: list[TrajectoryGroup], spec: ObjectiveSpec, tokens: int, layout: Layout
) -> tuple[torch.Tensor, dict[str, float | None]]:
    """Gradient and numbers of a step."""
    objective = resolve(spec)
    batch = step_batch(groups, objective, tokens, layout)
    assert layout in {_laid(micro.inputs) for micro in batch.micro_batches}
    student.model.zero_grad()
    numbers = accumulate_gradients(student, batch, objective, 0.7, stopwatch=Stopwatch(), check=lambda: None).numbers()
    return torch.cat([p.grad.reshape(-1) for p in student.trainable() if p.grad is not None]), numbers


def _laid(inputs: Inputs) -> Layout:
    if isinstance(inputs, PackedRow):
        return Layout.PACKED
    return Layout.BRANCHES if inputs.branch_ids_NT.numel() else Layout.ROWS


def long_prompts(seed: int) -> list[TrajectoryGroup]:
    """Ragged prompts and responses, one of a single token."""
    ragged = random_groups(seed, n=4)
    return [
        *(group(g.trajectories, prompt=[*range(3, 30 + 2 * g.ticket.slot)], slot=g.ticket.slot) for g in ragged),
        group([sample([7]), sample([8])], prompt=range(5, 50), slot=9),
    ]


@pytest.mark.parametrize("layout", [Layout.BRANCHES, Layout.PACKED])
@pytest.mark.parametrize("tokens", [70, 10_000], ids=["groups cut", "one micro-batch"])
@pytest.mark.parametrize(
    "spec", [ObjectiveSpec(entropy_weight=0.1), ObjectiveSpec(preset="topk-opd")], ids=["policy gradient", "divergence"]
)
def test_the_gradient_and_the_numbers_are_those_of_whole_rows(
    student: Student, spec: ObjectiveSpec, tokens: int, layout: Layout
) -> None:
    groups = long_prompts(1)
    shared, numbers = update(student, groups, spec, tokens, layout)
    whole, expected = update(student, groups, spec, tokens, Layout.ROWS)
    torch.testing.assert_close(shared, whole, atol=1e-5 * whole.norm().item(), rtol=1e-4)
    assert numbers.keys() == expected.keys()
    for name, value in expected.items():
        assert numbers[name] == (value if value is None else pytest.approx(value, abs=1e-4, rel=1e-4)), name


@pytest.mark.parametrize("layout", Layout)
def test_it_is_the_same_bit_for_bit_every_time(student: Student, layout: Layout) -> None:
    first, again = (update(student, long_prompts(2), ObjectiveSpec(), 400, layout)[0] for _ in range(2))
    assert torch.equal(first, again)


@pytest.mark.parametrize("packing", [False, True])
def test_adapters_read_a_prompt_once_too(student_folder: Path, packing: bool) -> None:
    spec = StudentSpec(model=str(student_folder), lora=LoraSpec(rank=4, alpha=8))
    adapted = load_student(spec, seed=0, device=CPU, packing=packing)
    assert adapted.layout is (Layout.PACKED if packing else Layout.BRANCHES)
    shared, whole = (
        update(adapted, long_prompts(3), ObjectiveSpec(), 400, each)[0] for each in (adapted.layout, Layout.ROWS)
    )
    torch.testing.assert_close(shared, whole, atol=1e-5 * whole.norm().item(), rtol=1e-4)


def test_activations_that_are_computed_again_leave_no_cache_to_branch_from_but_can_be_packed(
    student_folder: Path,
) -> None:
    spec = StudentSpec(model=str(student_folder))
    assert load_student(spec, seed=0, device=CPU).layout is Layout.BRANCHES
    assert load_student(spec, seed=0, device=CPU, gradient_checkpointing=True).layout is Layout.ROWS
    student = load_student(spec, seed=0, device=CPU, gradient_checkpointing=True, packing=True)
    packed, whole = (
        update(student, long_prompts(4), ObjectiveSpec(), 400, each)[0] for each in (Layout.PACKED, Layout.ROWS)
    )
    torch.testing.assert_close(packed, whole, atol=1e-5 * whole.norm().item(), rtol=1e-4)


def test_the_mask_of_blocks_is_the_dense_one(student: Student) -> None:
    """What a GPU reads; there is no gradient of it on a CPU."""
    groups = long_prompts(5)
    (micro,) = step_batch(groups, resolve(ObjectiveSpec()), 10_000, Layout.PACKED).micro_batches
    with torch.no_grad():
        dense = micro.inputs.hidden_states(student.body)
        student.causal.set_attn_implementation("flex_attention")
        assert uses_blocks(student.body)
        try:
            blocks = micro.inputs.hidden_states(student.body)
        finally:
            student.causal.set_attn_implementation("sdpa")
    torch.testing.assert_close(blocks, dense, atol=1e-4, rtol=1e-4)


def test_a_decoder_whose_attention_has_a_window_reads_whole_rows() -> None:
    config = MistralConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=4,
    )  # fmt: skip
    student = Student(MistralForCausalLM(config), None, "windowed", torch.float32, is_adapter=False)
    assert not supports(student.body, Layout.PACKED)
    assert not supports(student.body, Layout.BRANCHES)
