"""From hidden states to log-probabilities, a few positions at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# Vocabulary entries in one chunk: 32 MiB of float32.
CHUNK_ENTRIES = 2**23
# Logits, scaled logits, and what logsumexp, the entropy and the tail hold beside them, in bytes.
CHUNK_ENTRY_BYTES = 24


def chunk_positions(vocab_size: int) -> int:
    """Positions whose logits are held at once."""
    return max(1, CHUNK_ENTRIES // vocab_size)


@dataclass(frozen=True)
class Wanted:
    """What to compute at every position."""

    temperature: float
    top_k: int
    entropy: bool


@dataclass(frozen=True)
class PositionScores:
    """float32, on the CPU, natural logarithms of softmax(logits / temperature)."""

    logprobs: Tensor  # [N]
    candidate_logprobs: Tensor | None  # [N, C]
    top_ids: Tensor | None  # [N, K] int32, most likely first
    top_logprobs: Tensor | None  # [N, K]
    tail_logprobs: Tensor | None  # [N], log of the mass outside the top k
    entropy: Tensor | None  # [N], nats


def score_logits(logits: Tensor, targets: Tensor, candidates: Tensor | None, wanted: Wanted) -> PositionScores:
    """Score `targets` [N] and `candidates` [N, C] under `logits` [N, V]. A row with a NaN logit is NaN throughout."""
    scaled = logits.float()
    if wanted.temperature != 1.0:
        scaled = scaled / wanted.temperature
    total = scaled.logsumexp(-1, keepdim=True)
    top_ids = top_logprobs = tail = entropy = None
    if wanted.entropy:
        # entr(0) is 0 where 0 · log 0 would be NaN.
        entropy = torch.special.entr((scaled - total).exp()).sum(-1)
    chosen = (scaled.gather(-1, targets[:, None]) - total).squeeze(-1)
    candidate_logprobs = None if candidates is None else scaled.gather(-1, candidates) - total
    if wanted.top_k:
        top_logits, top_indices = scaled.topk(wanted.top_k, dim=-1)
        top_ids, top_logprobs = top_indices.int(), top_logits - total
        # Summed over what is left, since 1 - sum(top) has no digits where the top k hold nearly all mass.
        rest = scaled.scatter(-1, top_indices, -torch.inf).logsumexp(-1, keepdim=True)
        tail = (rest - total).squeeze(-1)
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
        return None if pieces[0] is None else torch.cat(pieces).cpu()

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
