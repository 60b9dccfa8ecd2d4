"""The chunked head against all logits at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from learner import head
from learner.head import head_logprobs

M, D, V, J = 11, 8, 50, 3
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def dense(
    weight_VD: Tensor, bias_V: Tensor | None, hidden_MD: Tensor, ids_MJ: Tensor, t: float
) -> tuple[Tensor, Tensor]:
    logprob_MV = (torch.nn.functional.linear(hidden_MD, weight_VD, bias_V) / t).log_softmax(-1)
    return logprob_MV.gather(-1, ids_MJ), -(logprob_MV.exp() * logprob_MV).sum(-1)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("entropy_gradient", [True, False], ids=["entropy", "no entropy"])
def test_values_and_gradients_are_the_dense_ones(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, bias: bool, temperature: float, entropy_gradient: bool
) -> None:
    monkeypatch.setattr(head, "LOGIT_CHUNK_ELEMENTS", 4 * V)  # chunks of 4, 4 and 3 positions
    torch.manual_seed(0)
    linear = nn.Linear(D, V, bias=bias, dtype=dtype)
    hidden_MD = torch.randn(M, D, dtype=dtype, requires_grad=True)
    ids_MJ = torch.randint(V, (M, J))
    ids_MJ[:, 2] = ids_MJ[:, 0]  # the sampled token among the candidates
    upstream_MJ, upstream_M = torch.randn(M, J, dtype=dtype), torch.randn(M, dtype=dtype)
    inputs = [hidden_MD, *linear.parameters()]

    def gradients(values: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        logprob_MJ, entropy_M = values
        total = (logprob_MJ * upstream_MJ).sum()
        return torch.autograd.grad(total + (entropy_M * upstream_M).sum() if entropy_gradient else total, inputs)

    found = head_logprobs(linear, hidden_MD, ids_MJ, temperature, entropy_gradient=entropy_gradient)
    expected = dense(linear.weight, linear.bias, hidden_MD, ids_MJ, temperature)
    assert found[1].requires_grad is entropy_gradient
    tolerance = TOLERANCE[dtype]
    for a, b in zip([*found, *gradients(found)], [*expected, *gradients(expected)], strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def test_no_position_at_all_has_a_gradient_of_zero() -> None:
    linear = nn.Linear(D, V)
    logprob_MJ, _ = head_logprobs(linear, torch.zeros(0, D), torch.zeros(0, J, dtype=torch.int64), 1.0)
    logprob_MJ.sum().backward()
    assert linear.weight.grad is not None
    assert not linear.weight.grad.any()


def test_all_logits_are_never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peak of what is allocated, by torch's own account, for four and for forty times the positions of a chunk."""
    monkeypatch.setattr(head, "LOGIT_CHUNK_ELEMENTS", 16 * 4096)
    linear = nn.Linear(4, 4096)

    def largest_tensor(positions: int) -> int:
        sizes: list[int] = []

        class Watch(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
                out = func(*args, **(kwargs or {}))
                sizes.extend(
                    t.untyped_storage().nbytes() for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, Tensor)
                )
                return out

        hidden_MD = torch.randn(positions, 4, requires_grad=True)
        with Watch():
            logprobs, _ = head_logprobs(linear, hidden_MD, torch.zeros(positions, 1, dtype=torch.int64), 1.0)
            logprobs.sum().backward()
        return max(sizes)

    assert largest_tensor(64) == largest_tensor(640) == 16 * 4096 * 4


def test_a_head_that_is_no_linear_map_is_refused() -> None:
    with pytest.raises(TypeError, match="Sequential"):
        head_logprobs(nn.Sequential(nn.Linear(D, V)), torch.zeros(1, D), torch.zeros(1, 1, dtype=torch.int64), 1.0)
