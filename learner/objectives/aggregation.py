"""From one loss a token to one loss a step, exactly, however the step is cut into micro-batches.

A rule gives the share of every counted token of each sample, from the number of counted tokens of all samples of the
step; the loss is the sum of shares times losses. Each term of a loss counts its own tokens. A sample in which nothing
counts is no sample of that term.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]  # counted tokens of each sample of the step, [N]
Shares = NDArray[np.float64]  # [N]


def token_mean(counts: Counts, length: int) -> Shares:
    """The mean over all counted tokens."""
    return np.full(len(counts), 1.0 / max(1, counts.sum()))


def sequence_mean_token_mean(counts: Counts, length: int) -> Shares:
    """The mean over samples of the mean over their tokens."""
    shares: Shares = 1.0 / np.maximum(1, counts) / _num_samples(counts)
    return shares


def sequence_mean_token_sum(counts: Counts, length: int) -> Shares:
    """The mean over samples of the sum over their tokens by a constant length, `max_tokens` (arXiv 2503.20783)."""
    return np.full(len(counts), 1.0 / length / _num_samples(counts))


def _num_samples(counts: Counts) -> int:
    return max(1, int(np.count_nonzero(counts)))


Aggregation = Callable[[Counts, int], Shares]
