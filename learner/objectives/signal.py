"""What the teacher's opinion of a token is worth: the signal `d`, one value a token."""

from __future__ import annotations

from torch import Tensor

from learner.objectives.tokens import Tokens


def opd(tokens: Tokens) -> Tensor:
    """On-policy distillation, `d = T − S̄`: the policy gradient with it descends the reverse KL to the teacher."""
    return tokens.teacher_M - tokens.student_M


def gopd(tokens: Tokens) -> Tensor:
    """Generalised on-policy distillation, `d = (T − S̄) + (λ − 1)(T − R)` (arXiv 2602.12125).

    Its optimum is π* ∝ π_ref^(1−λ) π_T^λ. At λ = 1 it is `opd`, bit for bit and whatever R is.
    """
    scale_M = tokens.reward_scale_M
    reward_M = (scale_M - 1.0) * (tokens.teacher_M - tokens.reference_M)
    return opd(tokens) + reward_M.where(scale_M != 1.0, 0.0)
