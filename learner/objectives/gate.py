"""Which part of the signal the verifier lets through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


def off(signal_M: Tensor, correct_M: Tensor) -> Tensor:
    """All of it."""
    return signal_M


def correctness(signal_M: Tensor, correct_M: Tensor) -> Tensor:
    """Encourage tokens of right samples and discourage tokens of wrong ones, never the reverse (OPDVR).

    `max(d, 0)` where the sample is correct, else `min(d, 0)`.
    """
    return torch.where(correct_M, signal_M.clamp(min=0.0), signal_M.clamp(max=0.0))


@dataclass(frozen=True)
class Gate:
    apply: Callable[[Tensor, Tensor], Tensor]
    needs_score: bool  # samples that could not be verified are masked


GATES = {
    "off": Gate(off, needs_score=False),
    "correctness": Gate(correctness, needs_score=True),
}
