"""Keys and values of prompt prefixes, kept between requests.

A prompt is always read in the same blocks, whether they are kept or not, and a block's keys and values follow from the
ids up to its end alone. So what is kept changes how long an answer takes and not one bit of it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from services.teacher import metrics

# Smaller blocks find more to reuse and cost more to read: 128 was the best of 32, 64 and 128 for 340-token prompts.
BLOCK_TOKENS = 128


def split_prompt(num_tokens: int) -> int:
    """Whole blocks before the rest of a prompt; the rest has at least the token that predicts the response."""
    return max(0, num_tokens - 1) // BLOCK_TOKENS


def block_digests(prompt: NDArray[np.int32]) -> list[bytes]:
    """One digest a whole block, of all ids up to its end."""
    digest, digests = b"", []
    for index in range(split_prompt(len(prompt))):
        ids = prompt[index * BLOCK_TOKENS : (index + 1) * BLOCK_TOKENS]
        digest = hashlib.sha256(digest + ids.tobytes()).digest()
        digests.append(digest)
    return digests


class PrefixCache:
    """Least recently used blocks go first. A block is one tensor [layers, 2, kv heads, BLOCK_TOKENS, head size]."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._blocks: OrderedDict[bytes, Tensor] = OrderedDict()
        self._num_bytes = 0

    def find(self, digests: Sequence[bytes]) -> list[Tensor]:
        """Blocks of the longest kept prefix, in order."""
        found: list[Tensor] = []
        for digest in digests:
            block = self._blocks.get(digest)
            if block is None:
                break
            found.append(block)
        # The first block last: without it those after it are of no use.
        for digest in reversed(digests[: len(found)]):
            self._blocks.move_to_end(digest)
        return found

    def keep(self, digest: bytes, block: Tensor) -> None:
        """Keep a block, dropping old ones for it; one larger than the limit is not kept."""
        if block.nbytes > self.limit_bytes or digest in self._blocks:
            return
        while self._num_bytes + block.nbytes > self.limit_bytes:
            _, dropped = self._blocks.popitem(last=False)
            self._num_bytes -= dropped.nbytes
        self._blocks[digest] = block
        self._num_bytes += block.nbytes
        metrics.prefix_bytes.set(self._num_bytes)


def join_blocks(blocks: Sequence[Tensor]) -> Tensor:
    """[layers, 2, kv heads, tokens, head size] of consecutive blocks."""
    return torch.cat(list(blocks), dim=-2)
