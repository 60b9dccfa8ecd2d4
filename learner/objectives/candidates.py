"""A divergence on a set of candidates: the candidates, and one bucket for all other tokens.

With the bucket both sides are distributions, so it is a divergence: never negative, and not lowered by moving the
student's mass out of the set.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from learner.objectives.divergence import Divergence

LEAST_TAIL = 1e-6  # mass of the bucket; below it float32 sums of candidates say nothing


@dataclass(frozen=True)
class Candidates:
    """M positions with at most K candidates; natural logarithms at the sampling temperature."""

    student_MK: Tensor  # with gradient; anything where there is no candidate
    teacher_MK: Tensor  # not finite where there is no candidate, or no value: its mass is in the bucket


def divergence(candidates: Candidates, kind: Divergence, mix: float) -> Tensor:
    """Nats at each position [M], with gradient; 0 where there is no candidate."""
    there_MK = candidates.teacher_MK.isfinite()
    student_MK, teacher_MK = (
        torch.cat([side_MK.where(there_MK, 0.0), _tail(side_MK, there_MK)[:, None]], dim=1)
        for side_MK in (candidates.student_MK, candidates.teacher_MK)
    )
    there_and_tail_MK = torch.cat([there_MK, torch.ones_like(there_MK[:, :1])], dim=1)
    at_M = kind(student_MK, teacher_MK, mix).where(there_and_tail_MK, 0.0).sum(dim=1)
    return at_M.where(there_MK.any(dim=1), 0.0)


def _tail(logprob_MK: Tensor, there_MK: Tensor) -> Tensor:
    """Logarithm of the mass outside the candidates, [M]."""
    mass_M = logprob_MK.where(there_MK, 0.0).exp().where(there_MK, 0.0).sum(dim=1)
    return (1.0 - mass_M).clamp(min=LEAST_TAIL).log()
