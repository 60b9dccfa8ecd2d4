"""How a group is split into batches: little padding, never too much at once, nobody left out."""

from __future__ import annotations

import pytest

from potstill.contracts.arrays import TokenIds
from potstill.contracts.scoring import Sequence
from services.teacher.groups import SPLIT_TOKENS, Group, batches


def _group(prompt: int, *lengths: int) -> Group:
    ids = TokenIds.of(range(prompt))
    sequences = tuple(Sequence(ids, TokenIds.of(range(length))) for length in lengths)
    return Group(ids, tuple(range(len(lengths))), sequences)


def test_a_group_that_fits_is_one_batch() -> None:
    assert batches(_group(10, 5, 7, 6), 1000) == [(1, 2, 0)]


@pytest.mark.parametrize("max_tokens", [1, 40, 200, 10_000])
def test_everybody_is_in_one_batch_within_the_budget(max_tokens: int) -> None:
    lengths = [3, 90, 1, 40, 41, 2, 300, 8]
    split = batches(_group(10, *lengths), max_tokens)
    assert sorted(place for batch in split for place in batch) == list(range(len(lengths)))
    for batch in split:
        assert len(batch) == 1 or len(batch) * (10 + max(lengths[place] for place in batch)) <= max_tokens


def test_short_responses_are_not_padded_to_a_long_one() -> None:
    lengths = [20, 900, 15, 880, 18, 20]
    split = batches(_group(10, *lengths), 10**6)
    assert split == [(1, 3), (0, 5, 4, 2)]
    padding = sum(max(lengths[p] for p in batch) - lengths[place] for batch in split for place in batch)
    assert padding < SPLIT_TOKENS
