"""From one loss a token to one loss a step, exactly, however the step is cut into micro-batches."""

from __future__ import annotations

from torch import Tensor


def token_mean(loss_M: Tensor, counted_M: Tensor, num_counted: int) -> Tensor:
    """This micro-batch's share of the mean over all counted tokens of the step.

    `num_counted` is the count over the whole step, so the shares add up to the mean. With no counted token the result
    is a zero that still has a gradient, and backward runs as on every other micro-batch.
    """
    kept_M = loss_M.where(counted_M, 0.0)
    return kept_M.sum() / max(1, num_counted)
