"""What a sample's score says beside the other samples of its prompt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SPREAD_FLOOR = 1e-6


def group_advantages(scores: Sequence[float | None], normalization: str) -> NDArray[np.float64]:
    """A of each sample of one prompt; NaN for those without a score, which the others do not see either.

    `std`: `(c − mean) / (std + 1e-6)` with the sample standard deviation (GRPO, arXiv 2402.03300); `mean`: `c − mean`
    (Dr. GRPO, arXiv 2503.20783). A group of one has A = c, and one without spread exactly 0.
    """
    values = np.array([np.nan if score is None else score for score in scores], dtype=np.float64)
    scored = values[~np.isnan(values)]
    if len(scored) < 2:
        return values
    if scored.min() == scored.max():
        return np.where(np.isnan(values), np.nan, 0.0)
    centred: NDArray[np.float64] = values - scored.mean()
    return centred / (scored.std(ddof=1) + SPREAD_FLOOR) if normalization == "std" else centred


def unscaled(group_advantage_M: Tensor, offset: float) -> Tensor:
    """Factor 1."""
    return torch.ones_like(group_advantage_M)


def magnitude(group_advantage_M: Tensor, offset: float) -> Tensor:
    """`|A| + u`: groups all right or all wrong keep u, so u = 0 drops them (arXiv 2608.24696)."""
    return group_advantage_M.abs() + offset
