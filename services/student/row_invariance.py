"""What makes a sample independent of its company: a row of a matrix product must not depend on the number of rows.

A matrix library picks its kernel, and with it the order of the additions, by the shape of the product. Intel MKL has
a mode that fixes the order whatever the number of rows (conditional numerical reproducibility, "strict"), at no
measurable cost here. Whether it holds is tested at start, on the model's own shapes; where it does not hold (other
libraries, GPUs) every step runs with the same number of rows, which makes rows independent as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch

MKL_VARIABLE = "MKL_CBWR"


def request_fixed_summation_order() -> None:
    """Ask MKL for its strict mode. Has an effect only before the first matrix product of the process."""
    capability = torch.backends.cpu.get_cpu_capability()
    if capability in ("AVX2", "AVX512"):
        os.environ.setdefault(MKL_VARIABLE, f"{capability},STRICT")


def linear_layers(model: torch.nn.Module) -> dict[tuple[int, ...], torch.nn.Linear]:
    """One linear layer of each kind: kernels depend on (outputs, inputs, has a bias), not on the weights."""
    layers = (module for module in model.modules() if isinstance(module, torch.nn.Linear))
    return {(*layer.weight.shape, layer.bias is not None): layer for layer in layers}


@torch.inference_mode()
def invariant_row_counts(layers: Iterable[torch.nn.Linear], slots: int) -> tuple[int, ...]:
    """The numbers of rows, ascending and ending with `slots`, that all give a row the same bits.

    Kernels are chosen by shape alone, so agreement on random input shows that the order of additions is the same.
    """
    counts = [1 << power for power in range(slots.bit_length()) if 1 << power < slots]
    for layer in layers:
        counts = [count for count in counts if _agrees(layer, count, slots)]
    return (*counts, slots)


def _agrees(layer: torch.nn.Linear, count: int, slots: int) -> bool:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(slots, 1, layer.in_features, generator=generator).to(layer.weight)
    return torch.equal(layer(rows[:count].clone()), layer(rows)[:count])
