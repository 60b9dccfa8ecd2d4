from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, PreTrainedTokenizerFast

from learner.batch import step_batch
from learner.errors import JobError
from learner.model import Student, base_logprobs, load_student, response_logprobs
from learner.objectives import Route, resolve
from learner.report import Stopwatch
from learner.update import accumulate_gradients
from potstill.contracts.arrays import LogProbs
from potstill.contracts.job import LoraSpec, StudentSpec
from potstill.contracts.objective import ObjectiveSpec
from potstill.contracts.trajectory import TrajectoryGroup
from tests.learner.groups import group, random_groups, sample
from tests.tiny_model import write_tiny_model

CPU = torch.device("cpu")


def test_logprobs_and_entropy_are_those_of_the_whole_model(student: Student) -> None:
    groups = random_groups(1)
    (micro,) = step_batch(groups, resolve(ObjectiveSpec()), 10**6).micro_batches
    found = response_logprobs(student, micro, temperature=0.7)
    with torch.no_grad():
        logits = student.model(input_ids=micro.inputs.stem_ids_GL).logits.flatten(0, 1)[micro.hidden_M]
        table = (logits / 0.7).log_softmax(-1)
    torch.testing.assert_close(found.logprob_M, table.gather(-1, micro.target_M[:, None])[:, 0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.entropy_M, -(table.exp() * table).sum(-1), atol=1e-5, rtol=1e-5)
    assert not found.entropy_M.requires_grad


def test_bfloat16_computes_in_bfloat16_with_float32_masters(student_folder: Path) -> None:
    spec = StudentSpec(model=str(student_folder), dtype="bfloat16")
    student = load_student(spec, seed=0, device=CPU)
    (micro,) = step_batch([group([sample([5, 6, 7])])], resolve(ObjectiveSpec()), 100).micro_batches
    found = response_logprobs(student, micro, 1.0).logprob_M
    exact = response_logprobs(load_student(StudentSpec(model=str(student_folder)), seed=0, device=CPU), micro, 1.0)
    assert {p.dtype for p in student.trainable()} == {torch.float32}
    assert found.dtype is torch.float32
    assert not torch.equal(found, exact.logprob_M)
    torch.testing.assert_close(found, exact.logprob_M, atol=0.2, rtol=0.05)
    found.sum().backward()
    assert {p.grad.dtype for p in student.trainable() if p.grad is not None} == {torch.float32}


def test_gradient_checkpointing_gives_the_same_gradient(student_folder: Path) -> None:
    def run(checkpointing: bool) -> torch.Tensor:
        spec = StudentSpec(model=str(student_folder))
        student = load_student(spec, seed=0, device=CPU, gradient_checkpointing=checkpointing)
        assert student.causal.is_gradient_checkpointing is checkpointing
        (micro,) = step_batch(random_groups(3), resolve(ObjectiveSpec()), 10**6).micro_batches
        response_logprobs(student, micro, 1.0).logprob_M.sum().backward()
        return torch.cat([p.grad.reshape(-1) for p in student.trainable() if p.grad is not None])

    torch.testing.assert_close(run(True), run(False), atol=1e-6, rtol=1e-5)


def test_adapters_alone_are_trained_and_start_from_the_seed(student_folder: Path) -> None:
    spec = StudentSpec(model=str(student_folder), lora=LoraSpec(rank=4, alpha=8))

    def first(seed: int) -> torch.Tensor:
        return load_student(spec, seed=seed, device=CPU).trainable()[0].detach()

    student = load_student(spec, seed=0, device=CPU)
    assert 0 < sum(p.numel() for p in student.trainable()) < sum(p.numel() for p in student.model.parameters()) / 2
    assert torch.equal(first(3), first(3))
    assert not torch.equal(first(3), first(4))


def test_a_model_that_is_not_there_is_a_job_error(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="could not be loaded") as caught:
        load_student(StudentSpec(model=str(tmp_path / "none")), seed=0, device=CPU)
    assert caught.value.code == "student_load_failed"


def test_a_model_that_caps_its_logits_is_refused_rather_than_trained_wrongly(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "capped")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    config = Gemma2Config(
        vocab_size=264,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        final_logit_softcapping=0.05,
    )
    Gemma2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with pytest.raises(JobError) as caught:
        load_student(StudentSpec(model=str(folder)), seed=0, device=CPU)
    assert caught.value.code == "student_unsupported"


def test_the_base_under_an_adapter_keeps_the_values_of_the_model_it_came_from(student_folder: Path) -> None:
    adapted = load_student(StudentSpec(model=str(student_folder), lora=LoraSpec(rank=4, alpha=8)), seed=0, device=CPU)
    with torch.no_grad():
        for parameter in adapted.trainable():  # as after training: both factors of every adapter are there
            parameter.add_(0.3)
    (micro,) = step_batch(random_groups(4), resolve(ObjectiveSpec()), 10**6).micro_batches
    original = response_logprobs(load_student(StudentSpec(model=str(student_folder)), seed=0, device=CPU), micro, 0.7)
    base = base_logprobs(adapted, micro, 0.7)
    assert not base.requires_grad
    torch.testing.assert_close(base, original.logprob_M.detach(), atol=1e-6, rtol=1e-6)
    assert (response_logprobs(adapted, micro, 0.7).logprob_M - base).abs().max() > 0.1


@pytest.mark.parametrize("parts", [{"preset": "exopd"}, {"reference_kl": "k2"}], ids=["exopd", "k2"])
def test_a_reference_called_base_is_worth_the_base_models_own_values(
    student_folder: Path, parts: dict[str, Any]
) -> None:
    """The gradient is the one with those values sent along by a service."""
    spec, adapted = (
        ObjectiveSpec(**parts),
        load_student(StudentSpec(model=str(student_folder), lora=LoraSpec(rank=4, alpha=8)), seed=0, device=CPU),
    )
    with torch.no_grad():
        for parameter in adapted.trainable():
            parameter.add_(0.3)
    without = [
        msgspec.structs.replace(
            g, trajectories=tuple(msgspec.structs.replace(t, reference_logprobs=None) for t in g.trajectories)
        )
        for g in random_groups(5, count=2)
    ]
    sent = [_with_base_values(adapted, g) for g in without]

    def found(groups: list[TrajectoryGroup], *, is_base: bool) -> torch.Tensor:
        routes = {name: Route(1.25, reference_is_base=is_base) for name in ("maths", "code")}
        objective = resolve(spec, routes=routes)
        batch = step_batch(groups, objective, 64)
        assert batch.missing.reference == 0
        adapted.model.zero_grad()
        numbers = accumulate_gradients(adapted, batch, objective, 0.7, stopwatch=Stopwatch(), check=lambda: None)
        assert numbers.numbers()["reference_kl"] is not None
        return torch.cat([p.grad.reshape(-1) for p in adapted.trainable() if p.grad is not None])

    torch.testing.assert_close(found(without, is_base=True), found(sent, is_base=False), atol=1e-4, rtol=1e-3)


def _with_base_values(adapted: Student, group: TrajectoryGroup) -> TrajectoryGroup:
    samples = []
    for trajectory in group.trajectories:
        alone = msgspec.structs.replace(group, trajectories=(trajectory,))
        (micro,) = step_batch([alone], resolve(ObjectiveSpec()), 10**6).micro_batches
        values = LogProbs.of(base_logprobs(adapted, micro, 0.7).numpy())
        samples.append(msgspec.structs.replace(trajectory, reference_logprobs=values))
    return msgspec.structs.replace(group, trajectories=tuple(samples))
