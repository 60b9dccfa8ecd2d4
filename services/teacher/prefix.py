"""Keys and values of prompt prefixes, kept between requests.

A prompt is always read in the same blocks, whether they are kept or not, and a block's keys and values follow from the
ids up to its end alone. So what is kept changes how long an answer takes and not one bit of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from services.teacher import metrics
from services.teacher.byte_limited import ByteLimited

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
    """Blocks, each one tensor [layers, 2, kv heads, BLOCK_TOKENS, head size]."""

    def __init__(self, limit_bytes: int) -> None:
        self._blocks: ByteLimited[bytes, Tensor] = ByteLimited(limit_bytes, lambda block: block.nbytes)

    def find(self, digests: Sequence[bytes]) -> list[Tensor]:
        """Blocks of the longest kept prefix, in order."""
        found: list[Tensor] = []
        for digest in digests:
            block = self._blocks.peek(digest)
            if block is None:
                break
            found.append(block)
        # The first block last: without it those after it are of no use.
        for digest in reversed(digests[: len(found)]):
            self._blocks.get(digest)
        return found

    def keep(self, digest: bytes, block: Tensor) -> None:
        """Keep a block, dropping old ones for it; one larger than the limit is not kept."""
        self._blocks.keep(digest, block)
        metrics.prefix_bytes.set(self._blocks.num_bytes)


def join_blocks(blocks: Sequence[Tensor]) -> Tensor:
    """[layers, 2, kv heads, tokens, head size] of consecutive blocks."""
    return torch.cat(list(blocks), dim=-2)
