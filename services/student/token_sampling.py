"""Drawing one token for each row of logits, each row from its own random stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Draw:
    """What one row wants of one step."""

    temperature: float  # 0: the most likely token
    uniform: float  # in [0, 1), from the sample's own stream
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True)
class Token:
    id: int
    logprob: float  # of the distribution drawn from, at 1 for temperature 0; not finite if the logits are not
    top_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()


@torch.inference_mode()
def draw_tokens(logits: Tensor, draws: Sequence[Draw]) -> list[Token]:
    """Draw a token a row from logits [A, V] by inverting the distribution function.

    Every reduction is within a row, in an order that does not depend on the other rows.
    """
    temperatures = torch.tensor([draw.temperature or 1.0 for draw in draws], device=logits.device)
    logprobs = torch.log_softmax(logits.float() / temperatures[:, None], dim=-1)
    logprobs = _within_nucleus(logprobs, draws)
    ids = _invert(logprobs, [draw.uniform for draw in draws])
    greedy = [row for row, draw in enumerate(draws) if draw.temperature == 0]
    if greedy:
        ids[greedy] = logprobs[greedy].argmax(dim=-1)
    chosen = logprobs.gather(1, ids[:, None])[:, 0]
    tops = _tops(logprobs, draws)
    return [
        Token(index, logprob, *top) for index, logprob, top in zip(ids.tolist(), chosen.tolist(), tops, strict=True)
    ]


def _within_nucleus(logprobs: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Keep of each row the fewest most likely tokens whose mass reaches its top_p, and make that a distribution."""
    rows = [row for row, draw in enumerate(draws) if draw.top_p < 1 and draw.temperature > 0]
    if not rows:
        return logprobs
    limits = torch.tensor([draws[row].top_p for row in rows], dtype=torch.float64, device=logprobs.device)
    ordered, order = logprobs[rows].sort(dim=-1, descending=True, stable=True)
    before = ordered.exp().cumsum(dim=-1, dtype=torch.float64) - ordered.exp()  # the mass of all more likely tokens
    ordered = ordered.masked_fill(before >= limits[:, None], float("-inf"))
    kept = torch.empty_like(ordered).scatter_(1, order, ordered)
    logprobs = logprobs.clone()
    logprobs[rows] = torch.log_softmax(kept, dim=-1)
    return logprobs


def _invert(logprobs: Tensor, uniforms: list[float]) -> Tensor:
    # In double precision: in single, rounding over a large vocabulary would shift probabilities by more than noise.
    cumulative = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
    targets = torch.tensor(uniforms, dtype=torch.float64, device=logprobs.device) * cumulative[:, -1]
    ids = torch.searchsorted(cumulative, targets[:, None], right=True)[:, 0]
    return ids.clamp_(max=logprobs.shape[1] - 1)


def _tops(logprobs: Tensor, draws: Sequence[Draw]) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    largest = max(draw.top_k for draw in draws)
    if largest == 0:
        return [((), ())] * len(draws)
    values, ids = (part.tolist() for part in logprobs.topk(largest, dim=-1))
    return [(tuple(ids[row][: draw.top_k]), tuple(values[row][: draw.top_k])) for row, draw in enumerate(draws)]
