"""A frozen transformers model that scores one group at a time. Not thread-safe: one thread owns it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.scoring import Sequence as ScoredSequence
from potstill.contracts.scoring import SequenceScore
from potstill.service.settings import SettingsError
from services.teacher.groups import Group, batches
from services.teacher.head import PositionScores, Wanted, chunk_positions, exact_products, score_hidden
from services.teacher.model_facts import load_config, model_id
from services.teacher.prefix import BLOCK_TOKENS, PrefixCache, block_digests, join_blocks
from services.teacher.settings import TeacherSettings

# Padded tokens of one batch of responses, the shared prompt counted for every row.
BATCH_TOKENS = 16384

PROBE_PROMPT_TOKENS = BLOCK_TOKENS + 5
PROBE_RESPONSE_TOKENS = 4
# How far two ways of computing one log-probability may lie apart: rounding, not another model.
PROBE_TOLERANCE = {torch.float32: 1e-2, torch.bfloat16: 0.5}


@dataclass(frozen=True)
class ReadPrompt:
    """A prompt's keys and values, and the hidden state that predicts the first response token."""

    cache: Any  # DynamicCache of one row
    last_hidden: Tensor  # [1, H]
    num_reused: int  # tokens whose keys and values were kept from before


@dataclass(frozen=True)
class GroupScores:
    scores: list[SequenceScore]  # in the order of the group's sequences
    num_reused: int  # prompt tokens taken from the prefix cache


class TorchModel:
    """Weights, the prefix cache, and the arithmetic of one group."""

    def __init__(self, settings: TeacherSettings) -> None:
        self.config = load_config(settings)
        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(automatic if settings.teacher_device == "auto" else settings.teacher_device)
        self.dtype: torch.dtype = getattr(torch, settings.teacher_dtype)
        model = AutoModelForCausalLM.from_pretrained(
            model_id(settings), revision=settings.teacher_revision, dtype=self.dtype
        )
        self._model: Any = model.to(self.device).eval().requires_grad_(False)
        self._body: Callable[..., Any] = self._model.base_model
        head = self._model.get_output_embeddings()
        self.vocab_size = int(head.weight.shape[0])
        # Logits in bfloat16 are an eighth apart at 16 and more, so the head alone computes in float32.
        self._head_weight: Tensor = head.weight.float()
        self._head_bias: Tensor | None = None if head.bias is None else head.bias.float()
        self._prefixes = PrefixCache(settings.teacher_prefix_bytes)
        kinds = {type(layer) for layer in DynamicCache(config=self.config).layers}
        if not kinds <= {DynamicLayer, DynamicSlidingWindowLayer}:
            raise self._unsupported("keeps a state that several responses cannot share")
        # A sliding window drops tokens, so it cannot be put together from blocks.
        self._blocks_apply = kinds == {DynamicLayer} and settings.teacher_prefix_bytes > 0

    @torch.inference_mode()
    def score_group(self, group: Group, wanted: Wanted) -> GroupScores:
        """The same bits whatever was scored before."""
        prompt = self._read_prompt(group.prompt)
        scores: dict[int, SequenceScore] = {}
        for places in batches(group, BATCH_TOKENS):
            rows = [group.sequences[place] for place in places]
            hidden = self._read_responses(prompt, rows)
            targets = torch.from_numpy(np.concatenate([np.asarray(row.response_token_ids) for row in rows]))
            candidates = _padded_candidates(rows)
            positions = score_hidden(
                hidden,
                self._logits,
                targets.long().to(self.device),
                None if candidates is None else candidates.to(self.device),
                wanted,
                chunk_positions(self.vocab_size),
            )
            scores.update(zip(places, _split(positions.cpu(), rows), strict=True))
        return GroupScores([scores[place] for place in range(len(group.sequences))], prompt.num_reused)

    def _read_prompt(self, prompt: TokenIds) -> ReadPrompt:
        digests = block_digests(prompt) if self._blocks_apply else []
        kept = self._prefixes.find(digests)
        cache = DynamicCache(config=self.config)
        if kept:
            for layer, (keys, values) in zip(cache.layers, join_blocks(kept), strict=True):
                layer.update(keys[None], values[None])
        for digest in digests[len(kept) :]:
            begin = cache.get_seq_length()
            self._forward(prompt[None, begin : begin + BLOCK_TOKENS], cache)
            self._prefixes.keep(digest, _block(cache, begin))
        rest = self._forward(prompt[None, len(digests) * BLOCK_TOKENS :], cache)
        return ReadPrompt(cache, rest[:, -1], len(kept) * BLOCK_TOKENS)

    def _read_responses(self, prompt: ReadPrompt, rows: Sequence[ScoredSequence]) -> Tensor:
        """Hidden states [N, H] that predict each response token, row after row without padding."""
        lengths = torch.tensor([len(row.response_token_ids) for row in rows])
        longest = int(lengths.max())
        hidden = prompt.last_hidden.expand(len(rows), 1, -1)
        if longest > 1:
            # Padded with the row's own last token: its weight is zero, but zero times another row's NaN would not be.
            inputs = np.stack([_padded(row.response_token_ids, longest)[:-1] for row in rows])
            hidden = torch.cat([hidden, self._forward(inputs, _expanded(prompt.cache, len(rows)))], dim=1)
        is_real = torch.arange(longest)[None] < lengths[:, None]
        return hidden[is_real.to(hidden.device)]

    def _forward(self, ids: np.ndarray[Any, Any], cache: Any) -> Tensor:
        """Hidden states [rows, tokens, H] of ids [rows, tokens] that follow what the cache holds."""
        inputs = torch.from_numpy(np.ascontiguousarray(ids, dtype=np.int64)).to(self.device)
        output = self._body(input_ids=inputs, past_key_values=cache, use_cache=True)
        hidden: Tensor = output.last_hidden_state
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        with exact_products(self.dtype):
            return functional.linear(hidden.float(), self._head_weight, self._head_bias)

    @torch.inference_mode()
    def check_arithmetic(self) -> None:
        """Score a probe as the model's own forward does. Raises SettingsError when the two disagree."""
        longest = getattr(self.config.get_text_config(), "max_position_embeddings", None) or PROBE_PROMPT_TOKENS
        ids = np.arange(1, min(PROBE_PROMPT_TOKENS + PROBE_RESPONSE_TOKENS, longest) + 1) % self.vocab_size
        inputs = torch.from_numpy(ids)[None].to(self.device)
        logits = self._model(input_ids=inputs).logits[0]
        head = self._model.get_output_embeddings()
        if not torch.allclose(head(self._body(input_ids=inputs).last_hidden_state[0]), logits, equal_nan=True):
            raise self._unsupported("changes its logits after the head")

        prompt, response = TokenIds.of(ids[:-PROBE_RESPONSE_TOKENS]), TokenIds.of(ids[-PROBE_RESPONSE_TOKENS:])
        group = Group(prompt, (0,), (ScoredSequence(prompt, response),))
        ours = np.asarray(self.score_group(group, Wanted(1.0, 0, False)).scores[0].logprobs)
        predicting = logits[-PROBE_RESPONSE_TOKENS - 1 : -1].float().log_softmax(-1)
        dense = predicting.gather(-1, inputs[0, -PROBE_RESPONSE_TOKENS:, None]).squeeze(-1).cpu().numpy()
        if not np.allclose(ours, dense, rtol=0, atol=PROBE_TOLERANCE[self.dtype], equal_nan=True):
            raise self._unsupported(
                f"scores a continued prompt {np.abs(ours - dense).max():.3g} apart from a whole one"
            )

    def _unsupported(self, reason: str) -> SettingsError:
        return SettingsError(
            f"POTSTILL_TEACHER_ENGINE: the torch engine cannot serve {type(self._model).__name__}, which {reason}: "
            f"use the vllm engine"
        )


def _padded(ids: TokenIds, length: int) -> np.ndarray[Any, Any]:
    return np.pad(np.asarray(ids), (0, length - len(ids)), mode="edge")


def _expanded(cache: Any, num_rows: int) -> Any:
    """A cache of `num_rows` equal rows that leaves the given one as it is; views, copied once when first added to."""
    expanded = copy.copy(cache)
    expanded.layers = [copy.copy(layer) for layer in cache.layers]
    for layer in expanded.layers:
        layer.keys = layer.keys.expand(num_rows, -1, -1, -1)
        layer.values = layer.values.expand(num_rows, -1, -1, -1)
    return expanded


def _block(cache: Any, begin: int) -> Tensor:
    """Keys and values from position `begin` on, [layers, 2, kv heads, tokens, head size]."""
    return torch.stack([torch.stack([layer.keys[0, :, begin:], layer.values[0, :, begin:]]) for layer in cache.layers])


def _padded_candidates(rows: Sequence[ScoredSequence]) -> Tensor | None:
    """int64 [N, widest], or None when no row has any."""
    widths = [0 if row.candidate_ids is None else row.candidate_ids.shape[1] for row in rows]
    if all(row.candidate_ids is None for row in rows):
        return None
    total = sum(len(row.response_token_ids) for row in rows)
    padded = np.zeros((total, max(widths)), dtype=np.int64)
    begin = 0
    for row, width in zip(rows, widths, strict=True):
        end = begin + len(row.response_token_ids)
        if row.candidate_ids is not None:
            padded[begin:end, :width] = row.candidate_ids
        begin = end
    return torch.from_numpy(padded)


def _split(positions: PositionScores, rows: Sequence[ScoredSequence]) -> list[SequenceScore]:
    """Give each row of a batch its own part."""
    scores: list[SequenceScore] = []
    begin = 0
    for row in rows:
        part = slice(begin, begin + len(row.response_token_ids))
        begin = part.stop
        candidates = row.candidate_ids
        scores.append(
            SequenceScore(
                logprobs=LogProbs.of(positions.logprobs[part].numpy()),
                candidate_logprobs=None
                if candidates is None or positions.candidate_logprobs is None
                else LogProbs.of(positions.candidate_logprobs[part, : candidates.shape[1]].numpy()),
                top_ids=None if positions.top_ids is None else TokenIds.of(positions.top_ids[part].numpy()),
                top_logprobs=_part(positions.top_logprobs, part),
                tail_logprobs=_part(positions.tail_logprobs, part),
                entropy=_part(positions.entropy, part),
            )
        )
    return scores


def _part(values: Tensor | None, part: slice) -> LogProbs | None:
    return None if values is None else LogProbs.of(values[part].numpy())
