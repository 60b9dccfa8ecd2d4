"""From hidden states to log-probabilities, a few positions at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Vocabulary entries in one chunk: 32 MiB of float32.
CHUNK_ENTRIES = 2**23
# Logits, their logarithm, and what the entropy and the tail hold beside them, in bytes.
CHUNK_ENTRY_BYTES = 24


def chunk_positions(vocab_size: int) -> int:
    """Positions whose logits are held at once."""
    return max(1, CHUNK_ENTRIES // vocab_size)


@contextlib.contextmanager
def exact_products(dtype: torch.dtype) -> Iterator[None]:
    """Let a CPU multiply float32 matrices as bfloat16, summing in float32, if their values came from `dtype` bfloat16.

    Nothing is lost, since such values are the same in both, and it is several times as fast where the CPU has
    instructions for it. The setting is the process's, so no other float32 product may run meanwhile.
    """
    if dtype is not torch.bfloat16:
        yield
        return
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before


@dataclass(frozen=True)
class Wanted:
    """What to compute at every position."""

    temperature: float
    top_k: int
    entropy: bool


@dataclass(frozen=True)
class PositionScores:
    """float32, natural logarithms of softmax(logits / temperature)."""

    logprobs: Tensor  # [N]
    candidate_logprobs: Tensor | None  # [N, C]
    top_ids: Tensor | None  # [N, K] int32, most likely first
    top_logprobs: Tensor | None  # [N, K]
    tail_logprobs: Tensor | None  # [N], log of the mass outside the top k
    entropy: Tensor | None  # [N], nats

    def cpu(self) -> PositionScores:
        moved: dict[str, Any] = {name: None if value is None else value.cpu() for name, value in vars(self).items()}
        return PositionScores(**moved)


def score_logits(logits: Tensor, targets: Tensor, candidates: Tensor | None, wanted: Wanted) -> PositionScores:
    """Score `targets` [N] and `candidates` [N, C] under `logits` [N, V]. A row with a NaN logit is NaN throughout."""
    scaled = logits.float()
    if wanted.temperature != 1.0:
        scaled = scaled / wanted.temperature
    logprobs_NV = scaled.log_softmax(-1)
    top_ids = top_logprobs = tail = entropy = None
    if wanted.entropy:
        # entr(0) is 0 where 0 · log 0 would be NaN.
        entropy = torch.special.entr(logprobs_NV.exp()).sum(-1)
    chosen = logprobs_NV.gather(-1, targets[:, None]).squeeze(-1)
    candidate_logprobs = None if candidates is None else logprobs_NV.gather(-1, candidates)
    if wanted.top_k:
        top_logprobs, top_indices = logprobs_NV.topk(wanted.top_k, dim=-1)
        top_ids = top_indices.int()
        # Summed over what is left, since 1 - sum(top) has no digits where the top k hold nearly all mass.
        tail = logprobs_NV.scatter_(-1, top_indices, -torch.inf).logsumexp(-1)
    return PositionScores(chosen, candidate_logprobs, top_ids, top_logprobs, tail, entropy)


def score_hidden(
    hidden: Tensor,
    head: Callable[[Tensor], Tensor],
    targets: Tensor,
    candidates: Tensor | None,
    wanted: Wanted,
    num_positions: int,
) -> PositionScores:
    """`score_logits(head(hidden), …)` for hidden [N, H], `num_positions` rows at a time."""
    parts = [
        score_logits(
            head(hidden[begin : begin + num_positions]),
            targets[begin : begin + num_positions],
            None if candidates is None else candidates[begin : begin + num_positions],
            wanted,
        )
        for begin in range(0, len(hidden), num_positions)
    ]

    def joined(name: str) -> Tensor | None:
        pieces = [getattr(part, name) for part in parts]
        return None if pieces[0] is None else torch.cat(pieces)

    logprobs = joined("logprobs")
    assert logprobs is not None
    return PositionScores(
        logprobs,
        joined("candidate_logprobs"),
        joined("top_ids"),
        joined("top_logprobs"),
        joined("tail_logprobs"),
        joined("entropy"),
    )
