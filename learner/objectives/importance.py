"""Correction for what sampled the tokens not being what is trained: truncated importance weights.

The engines' numerics, and up to `max_staleness` updates, lie between the behaviour policy and the student.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from learner.objectives.loss import MAX_LOG_RATIO


def off(log_ratio_M: Tensor, sample_M: Tensor, num_samples: int) -> Tensor:
    """Weight 1."""
    return torch.ones_like(log_ratio_M)


def token(log_ratio_M: Tensor, sample_M: Tensor, num_samples: int) -> Tensor:
    """`exp(S̄ − B)` of each token."""
    return log_ratio_M.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def sequence(log_ratio_M: Tensor, sample_M: Tensor, num_samples: int) -> Tensor:
    """`exp(Σ (S̄ − B))` over a sample's tokens, for each of them."""
    summed_N = log_ratio_M.new_zeros(num_samples).index_add(0, sample_M, log_ratio_M)
    return summed_N.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()[sample_M]


Ratio = Callable[[Tensor, Tensor, int], Tensor]


def mismatch_kl(log_ratio_M: Tensor) -> Tensor:
    """Unbiased, never negative estimate of KL(behaviour ‖ student) a token: `r − 1 − log r` with `r = exp(S̄ − B)`."""
    clamped_M = log_ratio_M.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return clamped_M.expm1() - clamped_M
