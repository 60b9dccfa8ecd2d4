"""Which samples of a step go through the model together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

Size = tuple[int, int, int]  # number of its group, prompt tokens, response tokens


@dataclass(frozen=True)
class Cut:
    """One micro-batch: indices of samples, and whether those of a group share its prompt."""

    rows: tuple[int, ...]
    shared: bool
    num_padded_tokens: int


def pack(sizes: Sequence[Size], max_tokens: int, share_prompts: bool) -> list[Cut]:
    """Cut into micro-batches of at most `max_tokens` padded tokens, of the kind that has fewer of them in all."""
    alone = list(_by_length(sizes, max_tokens))
    shared = list(_by_group(sizes, max_tokens)) if share_prompts else alone
    return min(alone, shared, key=lambda cuts: sum(cut.num_padded_tokens for cut in cuts))


def _by_length(sizes: Sequence[Size], max_tokens: int) -> Iterator[Cut]:
    """Longest first, so that rows of like length share a micro-batch; Python's sort keeps equals in order."""
    length = [prompt + response for _, prompt, response in sizes]
    waiting = sorted(range(len(sizes)), key=lambda index: -length[index])
    while waiting:
        count = max(1, max_tokens // max(1, length[waiting[0]]))
        yield Cut(tuple(waiting[:count]), False, len(waiting[:count]) * length[waiting[0]])
        waiting = waiting[count:]


def _by_group(sizes: Sequence[Size], max_tokens: int) -> Iterator[Cut]:
    """Groups with long responses first; a group that is too long for one micro-batch is cut."""
    bundles = [list(rows) for _, rows in groupby(range(len(sizes)), key=lambda index: sizes[index][0])]
    parts = [part for bundle in bundles for part in _parts(sizes, bundle, max_tokens)]
    parts.sort(key=lambda part: (-_longest_branch(sizes, part), -sizes[part[0]][1]))
    together: list[list[int]] = []
    for part in parts:
        if together and _padded(sizes, [*together, part]) > max_tokens:
            yield _shared(sizes, together)
            together = []
        together.append(part)
    if together:
        yield _shared(sizes, together)


def _parts(sizes: Sequence[Size], bundle: list[int], max_tokens: int) -> Iterator[list[int]]:
    ordered = sorted(bundle, key=lambda index: -sizes[index][2])
    while ordered:
        room = max_tokens - sizes[ordered[0]][1]
        count = max(1, room // max(1, _longest_branch(sizes, ordered)))
        yield ordered[:count]
        ordered = ordered[count:]


def _longest_branch(sizes: Sequence[Size], rows: Sequence[int]) -> int:
    """Response tokens that are read: the last predicts nothing."""
    return max(max(0, sizes[index][2] - 1) for index in rows)


def _padded(sizes: Sequence[Size], parts: Sequence[Sequence[int]]) -> int:
    rows = [index for part in parts for index in part]
    return len(parts) * max(sizes[index][1] for index in rows) + len(rows) * _longest_branch(sizes, rows)


def _shared(sizes: Sequence[Size], parts: Sequence[Sequence[int]]) -> Cut:
    return Cut(tuple(index for part in parts for index in part), True, _padded(sizes, parts))
