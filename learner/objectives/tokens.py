"""What an objective reads of each sampled token."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Tokens:
    """M tokens of N samples: natural log-probabilities at the sampling temperature, and what is known of their samples.

    Nothing here carries a gradient. A value that could not be had is 0, and what needs it does not count its token.
    """

    student_M: Tensor  # S̄
    teacher_M: Tensor  # T
    behaviour_M: Tensor  # B
    behaviour_known_M: Tensor  # bool
    reference_M: Tensor  # R
    reward_scale_M: Tensor  # λ of the sample's teacher
    correct_M: Tensor  # bool
    group_advantage_M: Tensor  # A, 0 where there is no score
    sample_M: Tensor  # index of the sample
    num_samples: int
