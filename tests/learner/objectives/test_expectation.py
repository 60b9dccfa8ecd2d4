"""On a categorical model small enough to enumerate, the sampled gradient's mean is the exact one."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from learner.objectives import resolve
from learner.objectives.signal import TokenLogprobs
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


def exact_gradient(student: Tensor, teacher: Tensor) -> Tensor:
    """Of the per-token reverse KL with the visited histories held fixed, as the token-level objective does."""
    leaf = student.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for t in range(LENGTH):
        for history in itertools.product(range(VOCAB), repeat=t):
            reach = logprobs(student, history).sum().exp() if history else 1.0
            ours, theirs = conditional(leaf, history), conditional(teacher, history)
            total = total + reach * (ours.exp() * (ours - theirs)).sum()
    (total / LENGTH).backward()
    assert leaf.grad is not None
    return leaf.grad


def test_mean_of_the_sampled_gradient_is_the_exact_reverse_kl_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(1 + VOCAB, VOCAB, generator=generator, dtype=torch.float64) for _ in range(2))
    objective = resolve(ObjectiveSpec(preset="opd"))
    mean = torch.zeros_like(student)
    for sequence in sequences():  # every outcome, weighted by its probability: the mean without sampling error
        leaf = student.clone().requires_grad_()
        student_M = logprobs(leaf, sequence)
        own, theirs = student_M.detach(), logprobs(teacher, sequence)
        everywhere = torch.ones(LENGTH, dtype=torch.bool)
        one_sample = torch.zeros(LENGTH, dtype=torch.int64)
        terms = objective.terms(student_M, TokenLogprobs(own, theirs, own), everywhere, everywhere, one_sample, 1)
        objective.aggregate(terms.loss_M, everywhere, LENGTH).backward()
        assert leaf.grad is not None
        mean += own.sum().exp() * leaf.grad
    torch.testing.assert_close(mean, exact_gradient(student, teacher), rtol=1e-10, atol=1e-12)


def test_descending_the_sampled_gradient_reaches_the_teacher() -> None:
    generator = torch.Generator().manual_seed(1)
    student, teacher = (torch.randn(VOCAB, generator=generator, dtype=torch.float64) for _ in range(2))
    objective = resolve(ObjectiveSpec(preset="opd"))
    for _ in range(400):
        leaf = student.clone().requires_grad_()
        logprob = leaf.log_softmax(-1)
        drawn = torch.multinomial(logprob.detach().exp(), 256, replacement=True, generator=generator)
        own, everywhere = logprob.detach()[drawn], torch.ones(256, dtype=torch.bool)
        tokens = TokenLogprobs(own, teacher.log_softmax(-1)[drawn], own)
        terms = objective.terms(logprob[drawn], tokens, everywhere, everywhere, torch.arange(256), 256)
        objective.aggregate(terms.loss_M, everywhere, 256).backward()
        student = student - 0.5 * leaf.grad
    torch.testing.assert_close(student.softmax(-1), teacher.softmax(-1), atol=1e-3, rtol=0)
