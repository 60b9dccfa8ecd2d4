"""How the samples of a micro-batch lie before the decoder."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicLayer

from learner.forward import Stems, branches, whole_rows
from learner.packed import PackedRow, packed_row
from learner.packing import Layout
from learner.sequences import Ids

TOLERANCE = 1e-3
NEEDED = {"past_key_values", "position_ids", "attention_mask"}

Inputs = Stems | PackedRow
Laid = tuple[Inputs, Tensor]  # and which hidden state predicts each response token [M]


def _rows(groups: Sequence[int], prompts: Sequence[Ids], responses: Sequence[Ids]) -> Laid:
    return whole_rows(prompts, responses)


LAYOUTS: dict[Layout, Callable[[Sequence[int], Sequence[Ids], Sequence[Ids]], Laid]] = {
    Layout.ROWS: _rows,
    Layout.BRANCHES: branches,
    Layout.PACKED: packed_row,
}


@torch.no_grad()
def supports(body: nn.Module, layout: Layout) -> bool:
    """Whether the layout gives what whole rows give: tried, on two prompts of unequal length."""
    if NEEDED - inspect.signature(body.forward).parameters.keys():
        return False
    device = next(body.parameters()).device
    # A window or a recurrent state would not show in a few tokens; it has a cache layer of its own.
    cache = body(input_ids=torch.arange(2, device=device)[None], use_cache=True).get("past_key_values")
    if cache is None or any(type(layer) is not DynamicLayer for layer in cache.layers):
        return False
    prompts = [np.arange(3), np.arange(3), np.arange(2)]
    responses = [np.arange(2), np.arange(1, 4), np.arange(4)]
    whole, laid = (
        inputs.to(device).hidden_states(body).index_select(0, hidden_M.to(device))
        for inputs, hidden_M in (LAYOUTS[each]([0, 0, 1], prompts, responses) for each in (Layout.ROWS, layout))
    )
    return torch.allclose(whole, laid, atol=TOLERANCE, rtol=TOLERANCE)
