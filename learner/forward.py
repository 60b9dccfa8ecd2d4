"""The decoder's forward over samples that may share their prompts.

A *stem* is read by itself; a *branch* goes on from the keys and values of its stem. Where samples do not share, each is
a stem of its own, prompt and response, and there are no branches.

    stem    [ prompt ············ ]──┬──[ response 1 ]        padding is on the right of either;
                                     ├──[ response 2 ···· ]   a branch does not see that of its stem
                                     └──[ response 3 · ]
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.cache_utils import DynamicLayer

PAD_ID = 0
TOLERANCE = 1e-3

Ids = NDArray[Any]


@dataclass(frozen=True)
class Inputs:
    """G stems of length L at most and N branches of length T at most; T is 0 where every stem is a whole row."""

    stem_ids_GL: Tensor
    stem_length_G: Tensor
    branch_ids_NT: Tensor
    stem_N: Tensor  # index of each branch's stem

    @property
    def num_padded_tokens(self) -> int:
        return self.stem_ids_GL.numel() + self.branch_ids_NT.numel()

    def to(self, device: torch.device) -> Inputs:
        return Inputs(**{name: tensor.to(device) for name, tensor in vars(self).items()})


def whole_rows(prompts: Sequence[Ids], responses: Sequence[Ids]) -> tuple[Inputs, Tensor]:
    """Every sample by itself, and which hidden state predicts each response token [M]."""
    stem_ids_GL, stem_length_G = _padded([np.concatenate(pair) for pair in zip(prompts, responses, strict=True)])
    width = stem_ids_GL.shape[1]
    # The hidden state at the last prompt token predicts the first response token.
    hidden = [
        row * width + len(prompt) - 1 + np.arange(len(response))
        for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True))
    ]
    none_NT = torch.zeros(len(prompts), 0, dtype=torch.int64)
    return Inputs(stem_ids_GL, stem_length_G, none_NT, torch.arange(len(prompts))), _flat(hidden)


def branches(groups: Sequence[int], prompts: Sequence[Ids], responses: Sequence[Ids]) -> tuple[Inputs, Tensor]:
    """Samples of one group share its prompt; the last response token, which predicts nothing, is not read."""
    order = list(dict.fromkeys(groups))
    stem_ids_GL, stem_length_G = _padded([prompts[groups.index(group)] for group in order])
    branch_ids_NT, _ = _padded([response[:-1] for response in responses])
    width, first_branch = branch_ids_NT.shape[1], stem_ids_GL.numel()
    stem_N = torch.tensor([order.index(group) for group in groups])
    ends = (stem_N * stem_ids_GL.shape[1] + stem_length_G[stem_N] - 1).tolist()
    hidden = [
        np.concatenate([[end], first_branch + row * width + np.arange(len(response) - 1)])[: len(response)]
        for row, (end, response) in enumerate(zip(ends, responses, strict=True))
    ]
    return Inputs(stem_ids_GL, stem_length_G, branch_ids_NT, stem_N), _flat(hidden)


def _padded(sequences: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """[rows, longest] and the lengths. Attention is causal, so padding on the right is seen by nothing before it."""
    lengths = [len(sequence) for sequence in sequences]
    padded = np.full((len(sequences), max(lengths)), PAD_ID, np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(padded), torch.tensor(lengths)


def _flat(indices: Sequence[NDArray[Any]]) -> Tensor:
    return torch.from_numpy(np.concatenate(indices).astype(np.int64))


def hidden_states(body: nn.Module, inputs: Inputs) -> Tensor:
    """Hidden states [G·L + N·T, D] after the last norm: those of the stems, then those of the branches."""
    if not inputs.branch_ids_NT.shape[1]:
        return body(input_ids=inputs.stem_ids_GL, use_cache=False).last_hidden_state.flatten(0, 1)  # type: ignore[no-any-return]
    stems = body(input_ids=inputs.stem_ids_GL, use_cache=True)
    for layer in stems.past_key_values.layers:
        # Not `keys[stem_N]`: its gradient is summed in an order that changes from run to run.
        layer.keys, layer.values = (kept.index_select(0, inputs.stem_N) for kept in (layer.keys, layer.values))
    length_N = inputs.stem_length_G[inputs.stem_N]
    position_T = torch.arange(inputs.branch_ids_NT.shape[1], device=length_N.device)
    stem_seen_NL = torch.arange(inputs.stem_ids_GL.shape[1], device=length_N.device) < length_N[:, None]
    grown = body(
        input_ids=inputs.branch_ids_NT,
        past_key_values=stems.past_key_values,
        attention_mask=torch.cat([stem_seen_NL, torch.ones_like(inputs.branch_ids_NT, dtype=torch.bool)], dim=1),
        position_ids=length_N[:, None] + position_T,
        use_cache=True,
    )
    return torch.cat([stems.last_hidden_state.flatten(0, 1), grown.last_hidden_state.flatten(0, 1)])


@torch.no_grad()
def can_share_prompts(body: nn.Module) -> bool:
    """Whether branches give what whole rows give: tried, on two prompts of unequal length."""
    if not {"past_key_values", "position_ids", "attention_mask"} <= inspect.signature(body.forward).parameters.keys():
        return False
    device = next(body.parameters()).device
    cache = body(input_ids=torch.arange(2, device=device)[None], use_cache=True).get("past_key_values")
    if cache is None or any(type(layer) is not DynamicLayer for layer in cache.layers):
        return False
    prompts = [np.arange(3), np.arange(3), np.arange(2)]
    responses = [np.arange(2), np.arange(1, 4), np.arange(4)]
    whole, shared = (
        hidden_states(body, inputs.to(device)).index_select(0, hidden_M.to(device))
        for inputs, hidden_M in (whole_rows(prompts, responses), branches([0, 0, 1], prompts, responses))
    )
    return torch.allclose(whole, shared, atol=TOLERANCE, rtol=TOLERANCE)
