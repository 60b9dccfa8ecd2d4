"""How far the student's distribution is from the teacher's at one position, over K + 1 buckets.

Each function gives one value a bucket, whose sum is the divergence in nats. p is the student, q the teacher; both come
as logarithms, and a bucket that is not there has 0 on both sides and is left out by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Divergence = Callable[[Tensor, Tensor, float], Tensor]


def reverse_kl(student_MK: Tensor, teacher_MK: Tensor, mix: float) -> Tensor:
    """`KL(p ‖ q)`."""
    return _kl(student_MK, teacher_MK)


def forward_kl(student_MK: Tensor, teacher_MK: Tensor, mix: float) -> Tensor:
    """`KL(q ‖ p)`."""
    return _kl(teacher_MK, student_MK)


def jsd(student_MK: Tensor, teacher_MK: Tensor, beta: float) -> Tensor:
    """`β KL(q ‖ m) + (1 − β) KL(p ‖ m)` with `m = β q + (1 − β) p` (arXiv 2306.13649)."""
    mixture_MK = _mixture(teacher_MK, student_MK, beta)
    return beta * _kl(teacher_MK, mixture_MK) + (1 - beta) * _kl(student_MK, mixture_MK)


def skew_forward_kl(student_MK: Tensor, teacher_MK: Tensor, alpha: float) -> Tensor:
    """`KL(q ‖ α q + (1 − α) p)` (DistiLLM, arXiv 2402.03898)."""
    return _kl(teacher_MK, _mixture(teacher_MK, student_MK, alpha))


def skew_reverse_kl(student_MK: Tensor, teacher_MK: Tensor, alpha: float) -> Tensor:
    """`KL(p ‖ α p + (1 − α) q)` (DistiLLM, arXiv 2402.03898)."""
    return _kl(student_MK, _mixture(student_MK, teacher_MK, alpha))


def _kl(first_MK: Tensor, second_MK: Tensor) -> Tensor:
    return first_MK.exp() * (first_MK - second_MK)


def _mixture(first_MK: Tensor, second_MK: Tensor, share: float) -> Tensor:
    """Logarithm of `share` of the first and the rest of the second."""
    return torch.logaddexp(first_MK + math.log(share), second_MK + math.log1p(-share))
