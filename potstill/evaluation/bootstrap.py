"""Percentile bootstrap over problems. Always the same resamples, so that a result has one interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000
INTERVAL = (2.5, 97.5)  # percentiles of a 95% interval
RESAMPLING_SEED = 0
RESAMPLES_AT_ONCE = 500


def bootstrap_interval(values: ArrayLike) -> tuple[float, float]:
    """95% interval of the mean of `values`, one a problem. For a paired interval give differences."""
    return _percentiles(_resampled_means(np.asarray(values, np.float64), 0))


def macro_interval(groups: Sequence[ArrayLike]) -> tuple[float, float]:
    """95% interval of the mean of the groups' means; each group is resampled by itself."""
    means = [_resampled_means(np.asarray(values, np.float64), index) for index, values in enumerate(groups)]
    return _percentiles(np.mean(means, axis=0))


def _resampled_means(values: NDArray[np.float64], stream: int) -> NDArray[np.float64]:
    """Means of 10,000 resamples of the values."""
    generator = np.random.default_rng(RESAMPLING_SEED if stream == 0 else (RESAMPLING_SEED, stream))
    means = [
        values[generator.integers(0, len(values), (RESAMPLES_AT_ONCE, len(values)))].mean(axis=1)
        for _ in range(RESAMPLES // RESAMPLES_AT_ONCE)
    ]
    return np.concatenate(means)


def _percentiles(means: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(means, INTERVAL)
    return float(low), float(high)
