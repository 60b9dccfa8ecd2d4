"""Which positions' hidden states are kept for a prefix hit, and that no others are taken for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from services.teacher.hidden_states import HiddenStates

IDS = np.arange(100, 200)
STATES = torch.arange(100.0)[:, None] * torch.ones(3)


@pytest.mark.parametrize("first", [0, 3, 7, 8, 20])
def test_what_a_hit_leaves_out_is_found_from_the_first_position_on(first: int) -> None:
    kept = HiddenStates(2**20, block_tokens=8)
    kept.keep(IDS, first, 0, STATES[:50])
    for end in range(8 * (first // 8 + 1), 49, 8):
        found = kept.find(IDS, first, end)
        assert found is not None
        torch.testing.assert_close(found, STATES[first:end])


def test_whole_blocks_of_a_later_step_are_kept_too() -> None:
    kept = HiddenStates(2**20, block_tokens=8)
    kept.keep(IDS, 5, 0, STATES[:12])  # the block of 8 to 15 is cut in two and lost
    kept.keep(IDS, 5, 12, STATES[12:32])
    assert kept.find(IDS, 5, 8) is not None
    assert kept.find(IDS, 5, 16) is None


def test_other_ids_and_another_first_position_find_nothing() -> None:
    kept = HiddenStates(2**20, block_tokens=8)
    kept.keep(IDS, 5, 0, STATES[:32])
    other = IDS.copy()
    other[0] += 1
    assert kept.find(other, 5, 16) is None
    assert kept.find(IDS, 6, 16) is None


def test_memory_is_bounded() -> None:
    kept = HiddenStates(limit_bytes=3 * 8 * 3 * 4, block_tokens=8)
    kept.keep(IDS, 0, 0, STATES)
    assert kept.find(IDS, 0, 8) is None
    assert kept._kept.num_bytes <= 3 * 8 * 3 * 4
