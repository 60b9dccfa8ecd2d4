"""Which samples of a step go through the model together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

Size = tuple[int, int, int]  # number of its group, prompt tokens, response tokens


class Layout(StrEnum):
    ROWS = "rows"  # every sample by itself, padded
    BRANCHES = "branches"  # a group's prompt once, its responses as branches of it, both padded
    PACKED = "packed"  # one row without padding, each prompt once


@dataclass(frozen=True)
class Cut:
    """One micro-batch: indices of samples, and how they lie."""

    rows: tuple[int, ...]
    layout: Layout
    num_padded_tokens: int


def pack(sizes: Sequence[Size], max_tokens: int, layout: Layout) -> list[Cut]:
    """Cut into micro-batches of at most `max_tokens` padded tokens; whole rows where branches would pad more."""
    if layout is Layout.PACKED:
        return list(_in_one_row(sizes, max_tokens))
    alone = list(_by_length(sizes, max_tokens))
    shared = list(_by_group(sizes, max_tokens)) if layout is Layout.BRANCHES else alone
    return min(alone, shared, key=lambda cuts: sum(cut.num_padded_tokens for cut in cuts))


def _by_length(sizes: Sequence[Size], max_tokens: int) -> Iterator[Cut]:
    """Longest first, so that rows of like length share a micro-batch; Python's sort keeps equals in order."""
    length = [prompt + response for _, prompt, response in sizes]
    waiting = sorted(range(len(sizes)), key=lambda index: -length[index])
    while waiting:
        count = max(1, max_tokens // max(1, length[waiting[0]]))
        yield Cut(tuple(waiting[:count]), Layout.ROWS, len(waiting[:count]) * length[waiting[0]])
        waiting = waiting[count:]


def _by_group(sizes: Sequence[Size], max_tokens: int) -> Iterator[Cut]:
    """Groups with long responses first; a group that is too long for one micro-batch is cut."""
    parts = [part for bundle in _groups(sizes) for part in _parts(sizes, bundle, max_tokens)]
    parts.sort(key=lambda part: (-_longest_branch(sizes, part), -sizes[part[0]][1]))
    together: list[list[int]] = []
    for part in parts:
        if together and _padded(sizes, [*together, part]) > max_tokens:
            yield _shared(sizes, together)
            together = []
        together.append(part)
    if together:
        yield _shared(sizes, together)


def _groups(sizes: Sequence[Size]) -> list[list[int]]:
    return [list(rows) for _, rows in groupby(range(len(sizes)), key=lambda index: sizes[index][0])]


def _in_one_row(sizes: Sequence[Size], max_tokens: int) -> Iterator[Cut]:
    """In the groups' order; a sample that no longer fits begins the next row, with its prompt read once more."""
    rows: list[int] = []
    length = 0
    for bundle in _groups(sizes):
        prompt = sizes[bundle[0]][1]
        for place, index in enumerate(bundle):
            own = _read(sizes[index])
            more = own if place and rows else own + prompt
            if rows and length + more > max_tokens:
                yield Cut(tuple(rows), Layout.PACKED, length)
                rows, length, more = [], 0, own + prompt
            rows, length = [*rows, index], length + more
    if rows:
        yield Cut(tuple(rows), Layout.PACKED, length)


def _parts(sizes: Sequence[Size], bundle: list[int], max_tokens: int) -> Iterator[list[int]]:
    ordered = sorted(bundle, key=lambda index: -sizes[index][2])
    while ordered:
        room = max_tokens - sizes[ordered[0]][1]
        count = max(1, room // max(1, _longest_branch(sizes, ordered)))
        yield ordered[:count]
        ordered = ordered[count:]


def _longest_branch(sizes: Sequence[Size], rows: Sequence[int]) -> int:
    return max(_read(sizes[index]) for index in rows)


def _read(size: Size) -> int:
    """Response tokens that are read: the last predicts nothing."""
    return max(0, size[2] - 1)


def _padded(sizes: Sequence[Size], parts: Sequence[Sequence[int]]) -> int:
    rows = [index for part in parts for index in part]
    return len(parts) * max(sizes[index][1] for index in rows) + len(rows) * _longest_branch(sizes, rows)


def _shared(sizes: Sequence[Size], parts: Sequence[Sequence[int]]) -> Cut:
    return Cut(tuple(index for part in parts for index in part), Layout.BRANCHES, _padded(sizes, parts))
