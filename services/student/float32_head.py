"""Logits in float32 whatever the model's dtype: in bfloat16 they are an eighth apart at 16 and more."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel


class Float32Head(nn.Linear):
    """A linear layer that keeps its weights as they are and computes in float32."""

    def forward(self, hidden: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.float()
        return functional.linear(hidden.float(), self.weight.float(), bias)


def with_float32_head(model: PreTrainedModel) -> PreTrainedModel:
    """Let the model's output head compute in float32; names, tying and sharing of its weights stay as they are."""
    head = model.get_output_embeddings()
    if type(head) is nn.Linear:
        head.__class__ = Float32Head
    return model
