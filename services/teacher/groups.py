"""Sequences of one request that share a prompt, so that it is read once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from potstill.contracts.arrays import TokenIds
from potstill.contracts.scoring import ScoreRequest, Sequence

# Fewer are padded sooner than another forward is run for them.
SPLIT_TOKENS = 256


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


def batches(group: Group, max_tokens: int) -> list[tuple[int, ...]]:
    """Split a group, longest response first, into batches of places in it, at least one each.

    A batch holds at most `max_tokens` padded tokens (prompt included), and a new one begins where that spares
    `SPLIT_TOKENS` of padding. The split depends on nothing but the group, so the same request is always computed in
    the same shapes.
    """
    lengths = [len(sequence.response_token_ids) for sequence in group.sequences]
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    begins = [0]
    for rank, place in enumerate(order[1:], start=1):
        longest = lengths[order[begins[-1]]]
        is_full = (rank - begins[-1] + 1) * (len(group.prompt) + longest) > max_tokens
        if is_full or (longest - lengths[place]) * (len(order) - rank) >= SPLIT_TOKENS:
            begins.append(rank)
    return [tuple(order[begin:end]) for begin, end in pairwise([*begins, len(order)])]
