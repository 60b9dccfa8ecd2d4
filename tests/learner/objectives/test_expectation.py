"""On a categorical model small enough to enumerate, the sampled gradient's mean is the exact one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from learner.objectives import resolve
from learner.objectives.tokens import Tokens
from potstill.contracts.objective import ObjectiveSpec

VOCAB, LENGTH = 3, 2


def conditional(logits: Tensor, history: tuple[int, ...]) -> Tensor:
    """Log-probabilities of the next token; `logits` has one row for every history."""
    row = 0 if not history else 1 + history[0]
    return logits[row].log_softmax(-1)


def sequences() -> list[tuple[int, ...]]:
    return list(itertools.product(range(VOCAB), repeat=LENGTH))


def logprobs(logits: Tensor, sequence: tuple[int, ...]) -> Tensor:
    return torch.stack([conditional(logits, sequence[:t])[token] for t, token in enumerate(sequence)])


def exact_gradient(student: Tensor, teacher: Tensor, *, forward: bool = False) -> Tensor:
    """Of the per-token reverse (or forward) KL with the visited histories held fixed, as the objective does."""
    leaf = student.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for t in range(LENGTH):
        for history in itertools.product(range(VOCAB), repeat=t):
            reach = logprobs(student, history).sum().exp() if history else 1.0
            ours, theirs = conditional(leaf, history), conditional(teacher, history)
            kl = (theirs.exp() * (theirs - ours)).sum() if forward else (ours.exp() * (ours - theirs)).sum()
            total = total + reach * kl
    (total / LENGTH).backward()
    assert leaf.grad is not None
    return leaf.grad


def tokens_of(
    student: Tensor, teacher: Tensor, *, reference: Tensor | None = None, reward_scale: float = 1.0
) -> Tokens:
    """Sampled with the student itself; each token a sample, none judged."""
    nothing = torch.zeros_like(student)
    return Tokens(
        student_M=student,
        teacher_M=teacher,
        behaviour_M=student,
        behaviour_known_M=nothing == 0,
        reference_M=nothing if reference is None else reference,
        reward_scale_M=torch.full_like(student, reward_scale),
        correct_M=nothing != 0,
        group_advantage_M=nothing,
        sample_M=torch.arange(len(student)),
        num_samples=len(student),
    )


def backward(spec: ObjectiveSpec, student_M: Tensor, tokens: Tokens) -> None:
    """Of the mean over the tokens."""
    objective = resolve(spec)
    everywhere = dict.fromkeys(objective.terms, tokens.behaviour_known_M)
    shares = dict.fromkeys(objective.terms, torch.full_like(student_M.detach(), 1 / len(student_M)))
    objective.total(objective.losses(student_M, torch.zeros_like(student_M), tokens, everywhere), shares).backward()


def mean_gradient(spec: ObjectiveSpec, student: Tensor, teacher: Tensor, reference: Tensor | None = None) -> Tensor:
    """Over every outcome, weighted by its probability: the mean without sampling error."""
    mean = torch.zeros_like(student)
    for sequence in sequences():
        leaf = student.clone().requires_grad_()
        student_M = logprobs(leaf, sequence)
        near_M = None if reference is None else logprobs(reference, sequence)
        backward(spec, student_M, tokens_of(student_M.detach(), logprobs(teacher, sequence), reference=near_M))
        assert leaf.grad is not None
        mean += student_M.detach().sum().exp() * leaf.grad
    return mean


def models(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    one, two, three = (torch.randn(1 + VOCAB, VOCAB, generator=generator, dtype=torch.float64) for _ in range(3))
    return one, two, three


def test_mean_of_the_sampled_gradient_is_the_exact_reverse_kl_gradient() -> None:
    student, teacher, _ = models(0)
    found = mean_gradient(ObjectiveSpec(preset="opd"), student, teacher)
    torch.testing.assert_close(found, exact_gradient(student, teacher), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_each_estimator_descends_the_kl_it_says(estimator: Any) -> None:
    """k1 and k2 KL(student ‖ reference), k3 as a loss KL(reference ‖ student), at the histories that were visited."""
    student, teacher, reference = models(2)
    weight = 0.5
    spec = ObjectiveSpec(preset="opd", reference_kl=estimator, reference_kl_weight=weight)
    alone = mean_gradient(ObjectiveSpec(preset="opd"), student, teacher)
    found = (mean_gradient(spec, student, teacher, reference) - alone) / weight
    exact = exact_gradient(student, reference, forward=estimator == "k3")
    torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("reward_scale", [0.5, 1.0, 1.25])
def test_descending_the_sampled_gradient_reaches_the_optimum_of_gopd(reward_scale: float) -> None:
    """π_ref^(1−λ) π_T^λ, normalised: every probability within 1e-3."""
    generator = torch.Generator().manual_seed(1)
    student, teacher, reference = (torch.randn(VOCAB, generator=generator, dtype=torch.float64) for _ in range(3))
    theirs, near = teacher.log_softmax(-1), reference.log_softmax(-1)
    for _ in range(400):
        leaf = student.clone().requires_grad_()
        logprob = leaf.log_softmax(-1)
        drawn = torch.multinomial(logprob.detach().exp(), 256, replacement=True, generator=generator)
        tokens = tokens_of(logprob.detach()[drawn], theirs[drawn], reference=near[drawn], reward_scale=reward_scale)
        backward(ObjectiveSpec(signal="gopd"), logprob[drawn], tokens)
        assert leaf.grad is not None
        student = student - 0.5 * leaf.grad
    optimum = ((1 - reward_scale) * near + reward_scale * theirs).softmax(-1)
    torch.testing.assert_close(student.softmax(-1), optimum, atol=1e-3, rtol=0)
