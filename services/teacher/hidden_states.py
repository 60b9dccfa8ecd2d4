"""Final hidden states of positions whose keys and values may come from vLLM's prefix cache next time.

A prefix hit ends at a block's end and may reach past the first position that must go through the head: where the prompt
fills its last block, or where another response began with the same tokens. Those positions are not computed again, so
what the head needs of them is kept, about a twentieth of their keys and values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from services.teacher.byte_limited import ByteLimited


@dataclass(frozen=True)
class Span:
    """Positions `begin` to `end` of one block."""

    begin: int
    end: int

    def key(self, ids: NDArray[np.int64]) -> bytes:
        """A hidden state follows from the ids up to it; the span is named by those up to its end."""
        return hashlib.blake2b(
            ids[: self.end].tobytes(), digest_size=24, salt=self.begin.to_bytes(8, "little")
        ).digest()


class HiddenStates:
    """Bounded by bytes; holds tensors [positions, H]."""

    def __init__(self, limit_bytes: int, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._kept: ByteLimited[bytes, Tensor] = ByteLimited(limit_bytes, lambda rows: rows.nbytes)

    def keep(self, ids: NDArray[np.int64], first: int, begin: int, hidden: Tensor) -> None:
        """Keep what a later request may need of `hidden`, the states from position `begin` on. No state before
        `first` is ever needed."""
        for span in self._spans(first, begin + len(hidden)):
            if span.begin >= begin:
                self._kept.keep(span.key(ids), hidden[span.begin - begin : span.end - begin].clone())

    def find(self, ids: NDArray[np.int64], first: int, end: int) -> Tensor | None:
        """States of the positions `first` to `end`; None when one of them was not kept."""
        found = [self._kept.get(span.key(ids)) for span in self._spans(first, end)]
        rows = [each for each in found if each is not None]
        return torch.cat(rows) if rows and sum(map(len, rows)) == end - first else None

    def _spans(self, first: int, end: int) -> Iterator[Span]:
        """The blocks that end in `first` + 1 to `end`, cut off at `first`."""
        size = self._block_tokens
        for block in range(first // size, end // size):
            yield Span(max(first, block * size), (block + 1) * size)
