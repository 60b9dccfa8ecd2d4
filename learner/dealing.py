"""Who takes which micro-batch of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from learner.batch import MicroBatch


def deal(micro_batches: Sequence[MicroBatch], rank: int, size: int) -> list[MicroBatch]:
    """The micro-batches of one rank, in rounds: every rank has one of each round, all about as long.

    Ranks gather each other's layers as they go, so those of a round run the decoder equally often. Where a round has
    too few, a rank gets one that counts for nothing.
    """
    if size == 1:
        return list(micro_batches)
    return [round_[rank] if rank < len(round_) else _idle(round_[-1]) for round_ in _rounds(micro_batches, size)]


def _rounds(micro_batches: Sequence[MicroBatch], size: int) -> Iterator[list[MicroBatch]]:
    kinds: dict[tuple[int, bool], list[MicroBatch]] = {}
    for micro in micro_batches:
        kinds.setdefault((micro.inputs.num_forwards, bool(micro.reference_is_base_N.any())), []).append(micro)
    for alike in kinds.values():
        ordered = sorted(alike, key=lambda micro: -micro.inputs.num_padded_tokens)
        yield from (ordered[first : first + size] for first in range(0, len(ordered), size))


def _idle(micro: MicroBatch) -> MicroBatch:
    """The same work, for nothing."""
    return replace(
        micro,
        counted={term: torch.zeros_like(mask) for term, mask in micro.counted.items()},
        shares={term: torch.zeros_like(share) for term, share in micro.shares.items()},
        reference_known_M=torch.zeros_like(micro.reference_known_M),
    )
