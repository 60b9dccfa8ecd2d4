"""Finding out which numbers of rows give a row the same bits."""

from __future__ import annotations

import torch

from services.student.row_invariance import invariant_row_counts, linear_layers


class Drifting(torch.nn.Linear):
    """Rounds by the number of rows, as a library does that picks its kernel by shape."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        # No matrix product: whether one keeps its bits is this machine's affair, and not what is tested here.
        return input + (1.0 if input.shape[0] < 4 else 0.0)


def test_row_counts_that_change_bits_are_left_out() -> None:
    assert invariant_row_counts([Drifting(8, 8)], slots=12) == (4, 8, 12)


def test_the_slots_are_always_a_row_count() -> None:
    class Fickle(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * (1 + input.shape[0] / 1e4)

    assert invariant_row_counts([Fickle(8, 8)], slots=8) == (8,)
    assert invariant_row_counts([], slots=1) == (1,)


def test_one_layer_of_each_kind_is_tried() -> None:
    linear = torch.nn.Linear
    model = torch.nn.Sequential(linear(4, 8), linear(8, 4), linear(4, 8), linear(4, 8, bias=False))
    assert list(linear_layers(model)) == [(8, 4, True), (4, 8, True), (8, 4, False)]
