"""From trajectory groups to micro-batches: padded rows for the model, flat response tokens for the objective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.objectives import Objective
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup

PAD_ID = 0  # never attended to: attention is causal and padding is on the right


@dataclass(frozen=True)
class Row:
    """One sample with its prompt."""

    prompt_ids: NDArray[Any]  # [P]
    trajectory: Trajectory
    teacher: str

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_ids) + len(self.trajectory.token_ids)


@dataclass(frozen=True)
class MicroBatch:
    """N rows of length L at most, with M response tokens in all.

    `row_M`, `position_M` say which hidden state predicts each response token. Teacher and behaviour values that could
    not be had are 0 here and not counted.
    """

    input_ids_NL: Tensor
    row_M: Tensor
    position_M: Tensor
    target_M: Tensor
    teacher_M: Tensor
    behaviour_M: Tensor
    counted_M: Tensor
    score_N: Tensor  # NaN: could not be verified
    teacher_N: Tensor  # index into the step's teacher names

    @property
    def num_rows(self) -> int:
        return self.input_ids_NL.shape[0]

    def to(self, device: torch.device) -> MicroBatch:
        return MicroBatch(**{name: value.to(device) for name, value in vars(self).items()})


@dataclass(frozen=True)
class StepBatch:
    """All that one optimizer step learns from."""

    micro_batches: tuple[MicroBatch, ...]
    teachers: tuple[str, ...]
    num_counted: int  # tokens that count, over the whole step
    num_tokens: int  # prompt and response tokens, without padding
    num_missing_teacher: int
    num_missing_behaviour: int
    num_unscored: int  # samples without a score


def step_batch(groups: Sequence[TrajectoryGroup], objective: Objective, max_tokens: int) -> StepBatch:
    """Cut a step into micro-batches of at most `max_tokens` padded tokens (a longer row has one of its own).

    The cut depends on nothing but the groups and their order. Tombstones have no rows.
    """
    rows = [Row(group.prompt_token_ids, t, group.teacher or "") for group in groups for t in group.trajectories]
    teachers = tuple(sorted({row.teacher for row in rows}))
    micro_batches = tuple(_micro_batch(chunk, teachers, objective) for chunk in _packed(rows, max_tokens))
    return StepBatch(
        micro_batches=micro_batches,
        teachers=teachers,
        num_counted=sum(int(micro.counted_M.sum()) for micro in micro_batches),
        num_tokens=sum(row.num_tokens for row in rows),
        num_missing_teacher=sum(int((~np.isfinite(_teacher(row))).sum()) for row in rows),
        num_missing_behaviour=sum(int((~np.isfinite(row.trajectory.behaviour_logprobs)).sum()) for row in rows),
        num_unscored=sum(row.trajectory.score is None for row in rows),
    )


def _packed(rows: list[Row], max_tokens: int) -> Iterator[list[Row]]:
    """Longest first, so that rows of like length share a micro-batch; Python's sort keeps equals in order."""
    waiting = sorted(rows, key=lambda row: -row.num_tokens)
    while waiting:
        size = max(1, max_tokens // max(1, waiting[0].num_tokens))
        yield waiting[:size]
        waiting = waiting[size:]


def _micro_batch(rows: list[Row], teachers: tuple[str, ...], objective: Objective) -> MicroBatch:
    lengths = [len(row.trajectory.token_ids) for row in rows]
    input_ids_NL = torch.full((len(rows), max(row.num_tokens for row in rows)), PAD_ID)
    for index, row in enumerate(rows):
        ids = np.concatenate([row.prompt_ids, row.trajectory.token_ids]).astype(np.int64)
        input_ids_NL[index, : len(ids)] = torch.from_numpy(ids)
    # The hidden state at the last prompt token predicts the first response token.
    positions = [np.arange(len(row.prompt_ids) - 1, row.num_tokens - 1) for row in rows]
    teacher_M = _flat([_teacher(row) for row in rows], np.float32)
    behaviour_M = _flat([row.trajectory.behaviour_logprobs for row in rows], np.float32)
    scored = [row.trajectory.score is not None or not objective.needs_score for row in rows]
    counted_M = (
        teacher_M.isfinite() & behaviour_M.isfinite() & torch.tensor(np.repeat(scored, lengths), dtype=torch.bool)
    )
    scores = [np.nan if row.trajectory.score is None else row.trajectory.score for row in rows]
    return MicroBatch(
        input_ids_NL=input_ids_NL,
        row_M=torch.tensor(np.repeat(np.arange(len(rows)), lengths), dtype=torch.int64),
        position_M=_flat(positions, np.int64),
        target_M=_flat([row.trajectory.token_ids for row in rows], np.int64),
        teacher_M=torch.nan_to_num(teacher_M, nan=0.0, posinf=0.0, neginf=0.0),
        behaviour_M=torch.nan_to_num(behaviour_M, nan=0.0, posinf=0.0, neginf=0.0),
        counted_M=counted_M,
        score_N=torch.tensor(scores, dtype=torch.float64),
        teacher_N=torch.tensor([teachers.index(row.teacher) for row in rows]),
    )


def _teacher(row: Row) -> NDArray[Any]:
    """[T]; a group that came without a teacher's values has none to count."""
    values = row.trajectory.teacher_logprobs
    return np.full(len(row.trajectory.token_ids), np.nan, np.float32) if values is None else values


def _flat(arrays: Sequence[NDArray[Any]], dtype: type) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(array) for array in arrays]).astype(dtype))
