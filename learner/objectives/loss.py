"""How an advantage becomes a loss."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0  # exp(20) is far above any clip or cap and far below overflow


def clipped_policy_gradient(
    student_M: Tensor,
    old_student_M: Tensor,
    advantage_M: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
) -> Tensor:
    """PPO's clipped surrogate, one loss a token, on `ρ = exp(S − S̄)` (arXiv 1707.06347; dual clip: 1912.09729).

    `old_student_M` and `advantage_M` carry no gradient. The first update on a batch has ρ = 1, where the gradient is
    REINFORCE's, `−A ∇S`.
    """
    ratio_M = (student_M - old_student_M).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    unclipped_M = -advantage_M * ratio_M
    clipped_M = -advantage_M * ratio_M.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss_M = torch.maximum(unclipped_M, clipped_M)
    bounded_M = torch.minimum(loss_M, -advantage_M * dual_clip)
    return torch.where(advantage_M < 0, bounded_M, loss_M)
