"""The tokens at which a divergence compares student and teacher: one set a position, with the teacher's values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from potstill.contracts.arrays import LogProbs, TokenIds

NONE = -1  # in place of an id


@dataclass(frozen=True)
class Candidates:
    """Ids [T, K], -1 where a position has fewer, and the teacher's log-probabilities, NaN there."""

    ids: TokenIds
    logprobs: LogProbs


def askable(ids: TokenIds, num_ids: int) -> TokenIds:
    """Ids [T, K] as a teacher may be asked for them: rows of padding, which it may not have, become id 0."""
    return TokenIds.of(np.where(_stands_for_text(ids, num_ids), ids, 0))


def united(
    named_by_student: tuple[TokenIds, LogProbs] | None, named_by_teacher: tuple[TokenIds, LogProbs] | None, num_ids: int
) -> Candidates:
    """The student's candidates, then the teacher's that are not among them; padding of the vocabulary is left out."""
    named = [pair for pair in (named_by_student, named_by_teacher) if pair is not None]
    ids = np.concatenate([np.asarray(part) for part, _ in named], axis=1)
    values = np.concatenate([np.asarray(part, dtype=np.float32) for _, part in named], axis=1)
    kept = _stands_for_text(ids, num_ids)
    if named_by_student is not None:
        mine = np.asarray(named_by_student[0])
        for column in range(mine.shape[1], ids.shape[1]):
            kept[:, column] &= (mine != ids[:, column, None]).all(axis=1)
    order = np.argsort(~kept, axis=1, kind="stable")
    packed_ids = np.take_along_axis(np.where(kept, ids, NONE), order, axis=1)
    packed_values = np.take_along_axis(np.where(kept, values, np.nan), order, axis=1)
    return Candidates(TokenIds.of(packed_ids), LogProbs.of(packed_values))


def _stands_for_text(ids: NDArray[np.int32], num_ids: int) -> NDArray[np.bool_]:
    return (np.asarray(ids) >= 0) & (np.asarray(ids) < num_ids)
