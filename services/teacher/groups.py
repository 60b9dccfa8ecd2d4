"""Sequences of one request that share a prompt, so that it is read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from potstill.contracts.arrays import TokenIds
from potstill.contracts.scoring import ScoreRequest, Sequence


@dataclass(frozen=True)
class Group:
    prompt: TokenIds  # [P]
    members: tuple[int, ...]  # places in the request
    sequences: tuple[Sequence, ...]

    @property
    def longest(self) -> int:
        return max(len(sequence.response_token_ids) for sequence in self.sequences)


def group_by_prompt(request: ScoreRequest) -> list[Group]:
    """Groups in order of first appearance; sequences without a response have nothing to compute and are left out."""
    places: dict[bytes, list[int]] = {}
    for index, sequence in enumerate(request.sequences):
        if len(sequence.response_token_ids):
            places.setdefault(sequence.prompt_token_ids.tobytes(), []).append(index)
    return [
        Group(
            prompt=request.sequences[members[0]].prompt_token_ids,
            members=tuple(members),
            sequences=tuple(request.sequences[index] for index in members),
        )
        for members in places.values()
    ]


def batches(group: Group, max_tokens: int) -> Iterator[tuple[Sequence, ...]]:
    """Split a group into batches of at most `max_tokens` padded tokens (prompt included), at least one row each.

    The split depends on nothing but the group, so the same request is always computed in the same shapes.
    """
    rows = max(1, max_tokens // (len(group.prompt) + group.longest))
    for begin in range(0, len(group.sequences), rows):
        yield group.sequences[begin : begin + rows]
