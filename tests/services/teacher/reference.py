"""The obvious way: one dense float64 forward a sequence, no cache, no batch, no chunks."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from potstill.contracts.arrays import TokenIds
from potstill.contracts.scoring import Sequence

VOCAB_SIZE = 264


@cache
def _load(folder: Path, dtype: torch.dtype) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def distribution(
    folder: Path, sequence: Sequence, temperature: float = 1.0, dtype: torch.dtype = torch.float64
) -> np.ndarray[Any, Any]:
    """float64 log-probabilities [T, V] of what may stand at each response position."""
    ids = torch.from_numpy(np.concatenate([sequence.prompt_token_ids, sequence.response_token_ids])).long()
    with torch.inference_mode():
        logits = _load(folder, dtype)(input_ids=ids[None]).logits[0].double()
    first = len(sequence.prompt_token_ids) - 1
    return (logits[first:-1] / temperature).log_softmax(-1).numpy()


def logprobs(
    folder: Path, sequence: Sequence, temperature: float = 1.0, dtype: torch.dtype = torch.float64
) -> np.ndarray[Any, Any]:
    """float64 [T]."""
    rows = distribution(folder, sequence, temperature, dtype)
    return rows[np.arange(len(rows)), np.asarray(sequence.response_token_ids)]


def greedy(folder: Path, prompt: TokenIds, length: int) -> list[int]:
    """What the model finds likeliest, token after token."""
    written: list[int] = []
    for _ in range(length):
        rows = distribution(folder, Sequence(prompt, TokenIds.of([*written, 0])))
        written.append(int(rows[-1].argmax()))
    return written


def ids(seed: int, length: int) -> TokenIds:
    """Random ids without special meaning."""
    return TokenIds.of(np.random.default_rng(seed).integers(3, VOCAB_SIZE, length))


def group(seed: int, prompt_length: int, response_lengths: list[int]) -> tuple[Sequence, ...]:
    """Sequences that share a prompt; each response ends with the end-of-sequence token, 2."""
    prompt = ids(seed, prompt_length)
    return tuple(
        Sequence(prompt, TokenIds.of([*ids(1000 * seed + index, length - 1), 2]))
        for index, length in enumerate(response_lengths)
    )
