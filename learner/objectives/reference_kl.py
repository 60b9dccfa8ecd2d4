"""Keeping the student near a reference: what each token's loss is, from S (with gradient) and R.

The estimators are named as in http://joschu.net/blog/kl-approx.html. What counts is the mean of the gradient over the
student's own samples: k1 and k2 descend KL(student ‖ reference); k3 as a loss, which is how GRPO uses it
(arXiv 2402.03300), descends KL(reference ‖ student), which is the same to first order (arXiv 2510.01555).
"""

from __future__ import annotations

from torch import Tensor

from learner.objectives.loss import MAX_LOG_RATIO


def k1(student_M: Tensor, reference_M: Tensor) -> Tensor:
    """`S − R` as a detached reward: the gradient is `(S̄ − R) ∇S`. As a loss it would have a gradient of mean zero."""
    reward_M = (student_M - reference_M).detach()
    surrogate_M = (student_M - student_M.detach()).exp()  # 1, with the gradient of S
    return reward_M * surrogate_M


def k2(student_M: Tensor, reference_M: Tensor) -> Tensor:
    """`(S − R)² / 2` as a loss: the gradient is `(S − R) ∇S`."""
    return (student_M - reference_M).square() / 2


def k3(student_M: Tensor, reference_M: Tensor) -> Tensor:
    """`r − 1 − log r` with `r = exp(R − S)` as a loss: the gradient is `(1 − r) ∇S`."""
    log_ratio_M = (reference_M - student_M).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return log_ratio_M.expm1() - log_ratio_M
