"""Token ids of unequal length as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PAD_ID = 0

Ids = NDArray[Any]


def padded(sequences: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """[rows, longest] and the lengths. Attention is causal, so padding on the right is seen by nothing before it."""
    lengths = [len(sequence) for sequence in sequences]
    padded = np.full((len(sequences), max(lengths)), PAD_ID, np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(padded), torch.tensor(lengths)


def flat(indices: Sequence[Ids]) -> Tensor:
    return torch.from_numpy(np.concatenate(indices).astype(np.int64))
