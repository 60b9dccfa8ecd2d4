"""What the service asks vLLM's engine for one sequence, and the table that it answers with."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.scoring import SequenceScore


class ScoringTask(msgspec.Struct, frozen=True):
    """Score `targets` after a prompt. Arrays are little-endian int32, as raw bytes."""

    num_prompt: int
    targets: bytes  # [T]
    candidates: bytes  # [T, C]
    temperature: float
    top_k: int
    entropy: bool

    @property
    def num_targets(self) -> int:
        return len(self.targets) // 4

    @property
    def columns(self) -> Columns:
        return Columns(len(self.candidates) // max(1, len(self.targets)), self.top_k, self.entropy)


@dataclass(frozen=True)
class Columns:
    """Where things stand in a row of the table: one float32 tensor [T, width] is all that leaves the engine.

    `logprob | entropy | tail | top values | top ids, their bits | candidates`, each only if it was asked for.
    """

    num_candidates: int
    top_k: int
    has_entropy: bool

    @property
    def entropy(self) -> slice:
        return slice(1, 1 + self.has_entropy)

    @property
    def tail(self) -> slice:
        return slice(self.entropy.stop, self.entropy.stop + (self.top_k > 0))

    @property
    def top_logprobs(self) -> slice:
        return slice(self.tail.stop, self.tail.stop + self.top_k)

    @property
    def top_ids(self) -> slice:
        return slice(self.top_logprobs.stop, self.top_logprobs.stop + self.top_k)

    @property
    def candidates(self) -> slice:
        return slice(self.top_ids.stop, self.top_ids.stop + self.num_candidates)

    @property
    def width(self) -> int:
        return int(self.candidates.stop)


def read_table(table: NDArray[np.float32], columns: Columns, has_candidates: bool) -> SequenceScore:
    """The score of a table [T, width]."""
    top_ids = np.ascontiguousarray(table[:, columns.top_ids]).view(np.int32)
    return SequenceScore(
        logprobs=LogProbs.of(table[:, 0]),
        candidate_logprobs=LogProbs.of(table[:, columns.candidates]) if has_candidates else None,
        top_ids=TokenIds.of(top_ids) if columns.top_k else None,
        top_logprobs=LogProbs.of(table[:, columns.top_logprobs]) if columns.top_k else None,
        tail_logprobs=LogProbs.of(table[:, columns.tail][:, 0]) if columns.top_k else None,
        entropy=LogProbs.of(table[:, columns.entropy][:, 0]) if columns.has_entropy else None,
    )
