"""Which part of the signal the verifier lets through."""

from __future__ import annotations

import torch
from torch import Tensor


def off(signal_M: Tensor, correct_M: Tensor, group_advantage_M: Tensor) -> Tensor:
    """All of it."""
    return signal_M


def correctness(signal_M: Tensor, correct_M: Tensor, group_advantage_M: Tensor) -> Tensor:
    """Encourage tokens of right samples and discourage tokens of wrong ones, never the reverse (arXiv 2608.24696).

    `max(d, 0)` where the sample is correct, else `min(d, 0)`.
    """
    return torch.where(correct_M, signal_M.clamp(min=0.0), signal_M.clamp(max=0.0))


def inverse(signal_M: Tensor, correct_M: Tensor, group_advantage_M: Tensor) -> Tensor:
    """The complement of `correctness`: together they are the signal. An ablation."""
    return correctness(signal_M, ~correct_M, group_advantage_M)


def relative(signal_M: Tensor, correct_M: Tensor, group_advantage_M: Tensor) -> Tensor:
    """As `correctness`, with better or worse than the prompt's other samples: `sign(A) · relu(sign(A) · d)`."""
    sign_M = group_advantage_M.sign()
    return sign_M * (sign_M * signal_M).relu()
