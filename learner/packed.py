"""Groups in one row without padding: each prompt once, behind it its responses, which do not see each other.

    ids       [ prompt 1 ··· | response | response ·· | prompt 2 · | response ··· | … ]
    segment     0              1          2             3            4
    stem        0              0          0             3            3

A token sees those before it in its own segment and in the segment's stem. On a GPU that is a block mask for flex
attention, which skips the blocks that nothing sees; elsewhere it is a dense mask for scaled dot product attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from learner.sequences import Ids, flat


@dataclass(frozen=True)
class PackedRow:
    """L tokens, of which each knows its place behind its prompt's beginning, its segment and that segment's stem."""

    ids_L: Tensor
    position_L: Tensor
    segment_L: Tensor
    stem_L: Tensor

    @property
    def num_padded_tokens(self) -> int:
        return len(self.ids_L)

    @property
    def num_forwards(self) -> int:
        return 1

    def to(self, device: torch.device) -> PackedRow:
        return PackedRow(**{name: tensor.to(device) for name, tensor in vars(self).items()})

    def hidden_states(self, body: nn.Module) -> Tensor:
        """Hidden states [L, D] after the last norm."""
        mask = self.block_mask() if uses_blocks(body) else self.dense_mask()
        told = body(
            input_ids=self.ids_L[None], position_ids=self.position_L[None], attention_mask=mask, use_cache=False
        )
        return told.last_hidden_state[0]  # type: ignore[no-any-return]

    def dense_mask(self) -> Tensor:
        """Which token (row) sees which (column), [1, 1, L, L]."""
        index_L = torch.arange(len(self.ids_L), device=self.ids_L.device)
        return self._sees(index_L[:, None], index_L[None, :])[None, None]

    def block_mask(self) -> BlockMask:
        length = len(self.ids_L)
        return create_block_mask(
            lambda _batch, _head, query, key: self._sees(query, key), None, None, length, length, self.ids_L.device
        )

    def _sees(self, query: Tensor, key: Tensor) -> Tensor:
        of_key = self.segment_L[key]
        return (key <= query) & ((of_key == self.segment_L[query]) | (of_key == self.stem_L[query]))


def packed_row(groups: Sequence[int], prompts: Sequence[Ids], responses: Sequence[Ids]) -> tuple[PackedRow, Tensor]:
    """Samples in one row, and which of its hidden states predicts each response token [M], in the samples' order."""
    segments: list[Ids] = []
    starts: list[int] = []  # position of a segment's first token
    stems: list[int] = []
    hidden: list[Ids] = [np.empty(0, np.int64)] * len(groups)
    length = 0
    for group in dict.fromkeys(groups):
        rows = [row for row, of in enumerate(groups) if of == group]
        stem, prompt = len(segments), prompts[rows[0]]
        segments, starts, stems = [*segments, prompt], [*starts, 0], [*stems, stem]
        length += len(prompt)
        end = length - 1
        for row in rows:
            read = responses[row][:-1]  # the last token predicts nothing
            hidden[row] = np.concatenate([[end], length + np.arange(len(read))])[: len(responses[row])]
            segments, starts, stems = [*segments, read], [*starts, len(prompt)], [*stems, stem]
            length += len(read)
    sizes = [len(segment) for segment in segments]
    positions = [start + np.arange(size) for start, size in zip(starts, sizes, strict=True)]
    packed = PackedRow(
        ids_L=flat(segments),
        position_L=flat(positions),
        segment_L=torch.from_numpy(np.repeat(np.arange(len(segments)), sizes)),
        stem_L=torch.from_numpy(np.repeat(np.array(stems), sizes)),
    )
    return packed, flat(hidden)


def uses_blocks(body: nn.Module) -> bool:
    return body.config._attn_implementation == "flex_attention"  # type: ignore[union-attr]
