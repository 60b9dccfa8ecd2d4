"""Forward passes of the torch engine: prompts alone, then all running samples together, one token a step.

Each running sample owns one row of a preallocated key/value cache. What a row computes depends on that row only, to the
last bit: see `row_invariance` for the linear layers; attention is computed over a span that only the row's own
length decides.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, PretrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from services.student.row_invariance import invariant_row_counts, linear_layers

ATTENTION = "potstill_slots"
SPAN = 64  # attention is computed over a multiple of this many positions

# Arguments that a model gives its attention when that is more than softmax(QK)V over all earlier positions.
UNSUPPORTED_ATTENTION = ("softcap", "s_aux", "sliding_window", "position_bias")


class UnsupportedModelError(ValueError):
    """The torch engine cannot run this architecture; the text says what can."""


@dataclass(frozen=True)
class Run:
    """Neighbouring rows whose attention covers the same span of positions."""

    start: int
    stop: int
    span: int


@dataclass(frozen=True)
class DecodePlan:
    """Where one decode step writes and how far each of its M rows looks back."""

    rows: Tensor  # [M]
    positions: Tensor  # [M], of the token that is fed
    mask: Tensor  # [M, 1, 1, S], 0 where a row may look, else -inf
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Prefill:
    """A prompt of length P, read once for all its samples."""

    keys_values: Tensor  # [layers, 2, kv_heads, P, head_dim]
    logits: Tensor  # [V], of the first response token

    @property
    def length(self) -> int:
        return self.keys_values.shape[-2]


def slot_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    plan: DecodePlan | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of one decode step over the whole cache; without a plan, plain causal attention of a prompt.

    query [M, heads, 1, D], key and value [slots, kv_heads, max_length, D]; returns [M, 1, heads, D].
    The query heads that share a key head become query positions, so that keys are read where they lie.
    """
    if any(kwargs.get(name) is not None for name in UNSUPPORTED_ATTENTION):
        raise UnsupportedModelError(f"{type(module).__name__} needs more than plain attention: use the vllm engine")
    if plan is None:
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return output, None
    count, heads, _, width = query.shape
    grouped = query.reshape(count, key.shape[1], heads // key.shape[1], width)
    attended = torch.empty_like(grouped)
    for run in plan.runs:
        rows = slice(run.start, run.stop)
        attended[rows] = functional.scaled_dot_product_attention(
            grouped[rows],
            key[rows, :, : run.span],
            value[rows, :, : run.span],
            attn_mask=plan.mask[rows, :, :, : run.span],
            scale=scaling,
        )
    return attended.reshape(count, 1, heads, width), None


AttentionInterface.register(ATTENTION, slot_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's view of the slot cache."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        raise AssertionError("the slot cache is allocated beforehand")

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, plan: DecodePlan | None = None, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        raise AssertionError("SlotCache.update writes, since only it knows the plan")

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.keys.shape[2], 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return int(self.keys.shape[2])


class SlotCache(Cache):  # type: ignore[misc]
    """Keys and values of all slots in one tensor, [layers, 2, slots, kv_heads, max_length, head_dim]."""

    def __init__(self, storage: Tensor) -> None:
        super().__init__(layers=[SlotLayer(layer[0], layer[1]) for layer in storage])
        self.storage = storage
        self.plan: DecodePlan | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write one position of every row; states are [M, kv_heads, 1, head_dim]."""
        assert self.plan is not None
        layer = self.layers[layer_idx]
        layer.keys[self.plan.rows, :, self.plan.positions] = key_states[:, :, 0]
        layer.values[self.plan.rows, :, self.plan.positions] = value_states[:, :, 0]
        return layer.keys, layer.values


class SlotDecoder:
    """A causal language model with `slots` rows of cache. Not thread-safe: one thread owns it."""

    def __init__(self, model: PreTrainedModel, slots: int, max_length: int) -> None:
        _require_plain_attention(model.config)
        self.slots = slots
        self.max_length = max_length
        self._cache = SlotCache(_allocate(model, slots, max_length))
        self._positions = torch.arange(max_length, device=model.device)
        self._kinds: frozenset[tuple[int, ...]] = frozenset()
        self.row_counts: tuple[int, ...] = (slots,)  # numbers of rows a step may have
        self.adopt(model)

    def adopt(self, model: PreTrainedModel) -> None:
        """Run this model from now on: the same architecture, perhaps with other linear layers inside (adapters)."""
        self._model = model
        layers = linear_layers(model)
        if layers.keys() != self._kinds:
            self._kinds = frozenset(layers)
            self.row_counts = invariant_row_counts(layers.values(), self.slots)

    @torch.inference_mode()
    def prefill(self, token_ids: Sequence[int]) -> Prefill:
        """Read one prompt, alone, so that no company can change it."""
        cache = DynamicCache()
        ids = torch.tensor([token_ids], device=self._model.device)
        output = self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        keys_values = torch.stack([torch.cat((layer.keys, layer.values)) for layer in cache.layers])
        return Prefill(keys_values, output.logits[0, -1])

    def place(self, prefill: Prefill, slot: int) -> None:
        """Copy a prompt's keys and values into a slot."""
        self._cache.storage[:, :, slot, :, : prefill.length] = prefill.keys_values

    def scrub(self, slot: int) -> None:
        """Forget values that are not finite: even where a mask hides them, zero times NaN is NaN."""
        self._cache.storage[:, :, slot].nan_to_num_(0.0, 0.0, 0.0)

    def move(self, source: int, target: int, length: int) -> None:
        """Move a sample of `length` cached positions to another slot, so that running samples stay in front."""
        storage = self._cache.storage
        storage[:, :, target, :, :length] = storage[:, :, source, :, :length]

    @torch.inference_mode()
    def step(self, token_ids: Sequence[int], positions: Sequence[int]) -> Tensor:
        """Feed the newest token of the samples in slots 0 … A-1 and return their next logits [A, V]."""
        running = len(token_ids)
        padding = [0] * (next(count for count in self.row_counts if count >= running) - running)
        plan = self._plan([*positions, *padding])
        self._cache.plan = plan
        output = self._model(
            input_ids=torch.tensor([*token_ids, *padding], device=self._model.device)[:, None],
            position_ids=plan.positions[:, None],
            attention_mask=plan.mask,
            past_key_values=self._cache,
            use_cache=True,
            plan=plan,
        )
        return output.logits[:running, 0]  # type: ignore[no-any-return]

    def _plan(self, positions: list[int]) -> DecodePlan:
        spans = [min(self.max_length, (position // SPAN + 1) * SPAN) for position in positions]
        where = torch.tensor(positions, device=self._model.device)
        hidden = self._positions[: max(spans)] > where[:, None]
        mask = torch.zeros(hidden.shape, dtype=self._model.dtype, device=hidden.device)
        mask.masked_fill_(hidden, float("-inf"))
        rows = torch.arange(len(positions), device=where.device)
        return DecodePlan(rows, where, mask[:, None, None, :], _runs(spans))


def _runs(spans: list[int]) -> tuple[Run, ...]:
    edges = [index for index in range(len(spans)) if index == 0 or spans[index] != spans[index - 1]]
    return tuple(Run(start, stop, spans[start]) for start, stop in zip(edges, [*edges[1:], len(spans)], strict=True))


def _allocate(model: PreTrainedModel, slots: int, max_length: int) -> Tensor:
    config = model.config.get_text_config()
    heads = config.num_key_value_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = (config.num_hidden_layers, 2, slots, heads, max_length, width)
    if model.device.type != "cpu":
        return torch.zeros(shape, dtype=model.dtype, device=model.device)
    # Fresh pages of the kernel are zero and cost nothing until they are written: a long max_length is no memory yet.
    pages = mmap.mmap(-1, math.prod(shape) * model.dtype.itemsize)
    return torch.frombuffer(pages, dtype=model.dtype).view(shape)


def _require_plain_attention(config: PretrainedConfig) -> None:
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or not hasattr(text, "num_key_value_heads"):
        raise UnsupportedModelError(
            f"the torch engine runs models whose layers all have full attention; {config.model_type} has "
            f"{', '.join(sorted(kinds))}: set POTSTILL_STUDENT_ENGINE=vllm"
        )
