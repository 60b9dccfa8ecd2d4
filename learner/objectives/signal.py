"""What the teacher's opinion of a token is worth: the signal `d`, one value a token."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class TokenLogprobs:
    """Natural log-probabilities of the sampled tokens, all at the sampling temperature. M tokens of any samples."""

    student_M: Tensor  # S̄, detached
    teacher_M: Tensor  # T
    behaviour_M: Tensor  # B


def opd(tokens: TokenLogprobs) -> Tensor:
    """On-policy distillation, `d = T − S̄`: the policy gradient with it descends the reverse KL to the teacher."""
    return tokens.teacher_M - tokens.student_M
