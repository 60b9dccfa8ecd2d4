"""How much memory the torch engine takes for a group, from the model's shape alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from potstill.contracts.scoring import ScoreRequest
from services.teacher.answers import answer_bytes
from services.teacher.groups import Group, batches, group_by_prompt
from services.teacher.head import CHUNK_ENTRY_BYTES, chunk_positions

# One of the top k in its chunk: value, int64 id, and what the selection sorts.
TOP_BYTES = 32
FLOAT32_BYTES = 4
# What the allocator keeps of small buffers; measured groups took 0.6 to 1.2 times their estimate without it.
MARGIN = 1.25


@dataclass(frozen=True)
class ModelShape:
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocab_size: int
    item_bytes: int  # of one weight

    @classmethod
    def of(cls, config: Any, vocab_size: int, item_bytes: int) -> ModelShape:
        """Read a transformers configuration."""
        text = config.get_text_config()
        heads = int(text.num_attention_heads)
        return cls(
            layers=int(text.num_hidden_layers),
            hidden=int(text.hidden_size),
            intermediate=int(getattr(text, "intermediate_size", None) or 4 * text.hidden_size),
            heads=heads,
            kv_heads=int(getattr(text, "num_key_value_heads", None) or heads),
            head_size=int(getattr(text, "head_dim", None) or text.hidden_size // heads),
            vocab_size=vocab_size,
            item_bytes=item_bytes,
        )

    @property
    def token_state_bytes(self) -> int:
        """Keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * self.item_bytes

    @property
    def token_activation_bytes(self) -> int:
        """What one layer holds of one token while it runs: residual and norm in float32, projections, the MLP."""
        projections = 2 * self.heads * self.head_size + 3 * self.intermediate + 3 * self.hidden
        return 3 * self.hidden * FLOAT32_BYTES + projections * self.item_bytes

    @property
    def token_attention_bytes(self) -> int:
        """Old and new keys and values of one token in one layer, repeated for every head."""
        return (4 * self.kv_heads + 2 * self.heads) * self.head_size * self.item_bytes


def estimate_group(group: Group, shape: ModelShape, batch_tokens: int) -> int:
    """Peak bytes of a group: the prompt alone, or the prompt and its largest batch of responses."""
    prompt = len(group.prompt)
    reading = prompt * (shape.token_activation_bytes + shape.token_attention_bytes)
    lengths = [[len(group.sequences[place].response_token_ids) for place in b] for b in batches(group, batch_tokens)]
    largest = max(_estimate_batch(prompt, len(batch), max(batch), shape) for batch in lengths)
    return prompt * shape.token_state_bytes + max(reading, largest)


def _estimate_batch(prompt: int, rows: int, longest: int, shape: ModelShape) -> int:
    padded = rows * longest
    context = rows * (prompt + longest)
    mask = longest * (prompt + longest) * (1 + FLOAT32_BYTES)
    responding = (
        context * (shape.token_state_bytes + shape.token_attention_bytes) + padded * shape.token_activation_bytes + mask
    )
    head = (
        padded * 2 * shape.hidden * shape.item_bytes
        + min(padded, chunk_positions(shape.vocab_size)) * shape.vocab_size * CHUNK_ENTRY_BYTES
    )
    return max(responding, head)


def estimate_request(request: ScoreRequest, shape: ModelShape, batch_tokens: int) -> int:
    """Peak bytes of a request, whose groups are computed one after the other."""
    largest = max((estimate_group(group, shape, batch_tokens) for group in group_by_prompt(request)), default=0)
    return int(MARGIN * largest) + answer_bytes(request)
