"""The decoder's forward over stems and branches: samples that may share their prompts.

A *stem* is read by itself; a *branch* goes on from the keys and values of its stem. Where samples do not share, each is
a stem of its own, prompt and response, and there are no branches.

    stem    [ prompt ············ ]──┬──[ response 1 ]        padding is on the right of either;
                                     ├──[ response 2 ···· ]   a branch does not see that of its stem
                                     └──[ response 3 · ]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from learner.sequences import Ids, flat, padded


@dataclass(frozen=True)
class Stems:
    """G stems of length L at most and N branches of length T at most; T is 0 where every stem is a whole row."""

    stem_ids_GL: Tensor
    stem_length_G: Tensor
    branch_ids_NT: Tensor
    stem_N: Tensor  # index of each branch's stem

    @property
    def num_padded_tokens(self) -> int:
        return self.stem_ids_GL.numel() + self.branch_ids_NT.numel()

    @property
    def num_forwards(self) -> int:
        """How often the decoder runs."""
        return 2 if self.branch_ids_NT.shape[1] else 1

    def to(self, device: torch.device) -> Stems:
        return Stems(**{name: tensor.to(device) for name, tensor in vars(self).items()})

    def hidden_states(self, body: nn.Module) -> Tensor:
        """Hidden states [G·L + N·T, D] after the last norm: those of the stems, then those of the branches."""
        if not self.branch_ids_NT.shape[1]:
            return body(input_ids=self.stem_ids_GL, use_cache=False).last_hidden_state.flatten(0, 1)  # type: ignore[no-any-return]
        stems = body(input_ids=self.stem_ids_GL, use_cache=True)
        for layer in stems.past_key_values.layers:
            # Not `keys[stem_N]`: its gradient is summed in an order that changes from run to run.
            layer.keys, layer.values = (kept.index_select(0, self.stem_N) for kept in (layer.keys, layer.values))
        length_N = self.stem_length_G[self.stem_N]
        position_T = torch.arange(self.branch_ids_NT.shape[1], device=length_N.device)
        stem_seen_NL = torch.arange(self.stem_ids_GL.shape[1], device=length_N.device) < length_N[:, None]
        grown = body(
            input_ids=self.branch_ids_NT,
            past_key_values=stems.past_key_values,
            attention_mask=torch.cat([stem_seen_NL, torch.ones_like(self.branch_ids_NT, dtype=torch.bool)], dim=1),
            position_ids=length_N[:, None] + position_T,
            use_cache=True,
        )
        return torch.cat([stems.last_hidden_state.flatten(0, 1), grown.last_hidden_state.flatten(0, 1)])


def whole_rows(prompts: Sequence[Ids], responses: Sequence[Ids]) -> tuple[Stems, Tensor]:
    """Every sample by itself, and which hidden state predicts each response token [M]."""
    stem_ids_GL, stem_length_G = padded([np.concatenate(pair) for pair in zip(prompts, responses, strict=True)])
    width = stem_ids_GL.shape[1]
    # The hidden state at the last prompt token predicts the first response token.
    hidden = [
        row * width + len(prompt) - 1 + np.arange(len(response))
        for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True))
    ]
    none_NT = torch.zeros(len(prompts), 0, dtype=torch.int64)
    return Stems(stem_ids_GL, stem_length_G, none_NT, torch.arange(len(prompts))), flat(hidden)


def branches(groups: Sequence[int], prompts: Sequence[Ids], responses: Sequence[Ids]) -> tuple[Stems, Tensor]:
    """Samples of one group share its prompt; the last response token, which predicts nothing, is not read."""
    order = list(dict.fromkeys(groups))
    stem_ids_GL, stem_length_G = padded([prompts[groups.index(group)] for group in order])
    branch_ids_NT, _ = padded([response[:-1] for response in responses])
    width, first_branch = branch_ids_NT.shape[1], stem_ids_GL.numel()
    stem_N = torch.tensor([order.index(group) for group in groups])
    ends = (stem_N * stem_ids_GL.shape[1] + stem_length_G[stem_N] - 1).tolist()
    hidden = [
        np.concatenate([[end], first_branch + row * width + np.arange(len(response) - 1)])[: len(response)]
        for row, (end, response) in enumerate(zip(ends, responses, strict=True))
    ]
    return Stems(stem_ids_GL, stem_length_G, branch_ids_NT, stem_N), flat(hidden)
