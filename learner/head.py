"""Log-probabilities and entropies through a language model's head, without ever holding all logits.

With z = (h Wᵀ + b) / τ, p = softmax(z), S_j = log p[id_j] and H the entropy, the gradient that reaches z is
Σ_j g_j (1[id_j] − p) − g_H p (log p + H). Backward computes the logits of a chunk again and writes that in their place,
so two float tables of a chunk are all that is held, and a row costs no more than its normalizer between the passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

LOGIT_CHUNK_ELEMENTS = 2**23  # logits held at a time: 32 MiB in float32
GPU_LOGIT_CHUNK_ELEMENTS = 2**27  # 512 MiB: enough rows for a large vocabulary to keep a GPU busy


def head_logprobs(
    head: nn.Module, hidden_MD: Tensor, ids_MJ: Tensor, temperature: float, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Natural log-probabilities of J ids at each of M positions, and the entropies [M] in nats, at `temperature`.

    The entropy has a gradient only where it is asked for. Raises TypeError for a head that is no linear map.
    """
    weight_VD, bias_V = linear_map(head)
    logprob_MJ, entropy_M = _ChunkedHead.apply(  # type: ignore[no-untyped-call]
        hidden_MD.to(weight_VD.dtype), weight_VD, bias_V, ids_MJ, temperature, entropy_gradient
    )
    return logprob_MJ, entropy_M


def linear_map(head: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight [V, D] and bias of a head, adapters that are in force included."""
    if isinstance(head, nn.Linear):
        return head.weight, head.bias
    if not hasattr(head, "get_delta_weight"):
        raise TypeError(f"the head is a {type(head).__name__}, not a linear map")
    base: Any = head.get_base_layer()  # type: ignore[operator]
    weight_VD = base.weight
    for adapter in [] if head.disable_adapters else head.active_adapters:  # type: ignore[union-attr]
        weight_VD = weight_VD + head.get_delta_weight(adapter)  # type: ignore[operator]
    return weight_VD, base.bias


class _ChunkedHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        ids_MJ: Tensor,
        temperature: float,
        entropy_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        logprob_MJ = hidden_MD.new_empty(ids_MJ.shape)
        normalizer_M, entropy_M = (hidden_MD.new_empty(len(hidden_MD)) for _ in range(2))
        for chunk in _chunks(hidden_MD, weight_VD):
            logits_CV = _logits(hidden_MD[chunk], weight_VD, bias_V, temperature)
            normalizer_M[chunk] = logits_CV.logsumexp(dim=-1)
            logits_CV -= normalizer_M[chunk, None]
            logprob_MJ[chunk] = logits_CV.gather(-1, ids_MJ[chunk])
            entropy_M[chunk] = -logits_CV.exp().mul_(logits_CV).sum(dim=-1)
        ctx.save_for_backward(hidden_MD, weight_VD, bias_V, ids_MJ, normalizer_M, entropy_M)
        ctx.temperature, ctx.entropy_gradient = temperature, entropy_gradient
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy_M)
        return logprob_MJ, entropy_M

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        logprob_gradient_MJ, entropy_gradient_M = gradients
        hidden_MD, weight_VD, bias_V, ids_MJ, normalizer_M, entropy_M = ctx.saved_tensors
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        hidden_gradient_MD = torch.empty_like(hidden_MD) if wants_hidden else None
        weight_gradient_VD = torch.zeros_like(weight_VD) if wants_weight else None
        bias_gradient_V = torch.zeros_like(bias_V) if wants_bias else None
        for chunk in _chunks(hidden_MD, weight_VD):
            logprob_CV = _logits(hidden_MD[chunk], weight_VD, bias_V, ctx.temperature)
            logprob_CV -= normalizer_M[chunk, None]
            factor = -logprob_gradient_MJ[chunk].sum(dim=-1, keepdim=True)
            if ctx.entropy_gradient:
                factor = factor - entropy_gradient_M[chunk, None] * (logprob_CV + entropy_M[chunk, None])
            gradient_CV = logprob_CV.exp_().mul_(factor)
            gradient_CV.scatter_add_(-1, ids_MJ[chunk], logprob_gradient_MJ[chunk])
            gradient_CV /= ctx.temperature
            if hidden_gradient_MD is not None:
                torch.mm(gradient_CV, weight_VD, out=hidden_gradient_MD[chunk])
            if weight_gradient_VD is not None:
                weight_gradient_VD.addmm_(gradient_CV.T, hidden_MD[chunk])
            if bias_gradient_V is not None:
                bias_gradient_V += gradient_CV.sum(dim=0)
        return hidden_gradient_MD, weight_gradient_VD, bias_gradient_V, None, None, None


def _chunks(hidden_MD: Tensor, weight_VD: Tensor) -> Iterator[slice]:
    elements = GPU_LOGIT_CHUNK_ELEMENTS if weight_VD.is_cuda else LOGIT_CHUNK_ELEMENTS
    size = max(1, elements // len(weight_VD))
    return (slice(start, start + size) for start in range(0, len(hidden_MD), size))


def _logits(hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, temperature: float) -> Tensor:
    logits_CV = torch.nn.functional.linear(hidden_CD, weight_VD, bias_V)
    return logits_CV if temperature == 1.0 else logits_CV.div_(temperature)
