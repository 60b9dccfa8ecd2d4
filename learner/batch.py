"""From trajectory groups to micro-batches: padded ids for the model, flat response tokens for the objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.layout import LAYOUTS, Inputs
from learner.objectives.group import group_advantages
from learner.objectives.objective import Objective, Route
from learner.objectives.terms import Known, Mask, Term, counted
from learner.packing import Cut, Layout, pack
from potstill.contracts.arrays import LogProbs
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup


@dataclass(frozen=True)
class Row:
    """One sample with its prompt."""

    group: int  # number of its group in the step
    prompt_ids: NDArray[Any]  # [P]
    trajectory: Trajectory
    teacher: str
    route: Route
    group_advantage: float  # A; NaN without a score
    asks_reference: bool
    known: Known
    counted: dict[Term, Mask]  # [T] each

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_ids) + self.num_response_tokens

    @property
    def num_response_tokens(self) -> int:
        return len(self.trajectory.token_ids)


@dataclass(frozen=True)
class MicroBatch:
    """N samples, with M response tokens and K candidates in all.

    Values that could not be had are 0 here, and not counted by what needs them.
    """

    inputs: Inputs
    hidden_M: Tensor  # which hidden state of the inputs predicts each response token
    row_M: Tensor  # index of its sample
    target_M: Tensor
    teacher_M: Tensor
    behaviour_M: Tensor
    reference_M: Tensor
    teacher_known_M: Tensor
    behaviour_known_M: Tensor
    reference_known_M: Tensor
    candidate_ids_MK: Tensor  # 0 where there is none
    candidate_teacher_MK: Tensor  # not finite where there is none
    score_N: Tensor  # NaN: could not be verified
    group_advantage_N: Tensor  # 0 without a score
    reward_scale_N: Tensor
    reference_is_base_N: Tensor
    teacher_N: Tensor  # index into the step's teacher names
    counted: Mapping[Term, Tensor]  # [M] each
    shares: Mapping[Term, Tensor]  # [M] each: of a token in the step's loss; the same unit over all micro-batches

    @property
    def num_rows(self) -> int:
        return len(self.score_N)

    def to(self, device: torch.device) -> MicroBatch:
        return MicroBatch(**{name: _moved(value, device) for name, value in vars(self).items()})


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Mapping):
        return {key: tensor.to(device) for key, tensor in value.items()}
    return value.to(device)


@dataclass(frozen=True)
class Missing:
    """Values of a step that could not be had, by kind."""

    teacher: int
    behaviour: int
    reference: int  # where the objective asks for one
    candidates: int  # without a teacher's value; a position without any candidate is one
    scores: int  # samples


@dataclass(frozen=True)
class StepBatch:
    """All that one optimizer step learns from."""

    micro_batches: tuple[MicroBatch, ...]
    teachers: tuple[str, ...]
    num_counted: int  # tokens that the main term counts, over the whole step
    num_tokens: int  # prompt and response tokens, without padding
    missing: Missing


def step_batch(
    groups: Sequence[TrajectoryGroup], objective: Objective, max_tokens: int, layout: Layout = Layout.ROWS
) -> StepBatch:
    """Cut a step into micro-batches of at most `max_tokens` padded tokens (a longer row has one of its own).

    The cut depends on nothing but the groups and their order. Tombstones have no rows. Raises JobError for a group of
    an unknown teacher.
    """
    rows = [row for number, group in enumerate(groups) for row in _rows(group, objective, number)]
    teachers = tuple(sorted({row.teacher for row in rows}))
    shares = {term: _shares(term, rows, objective) for term in objective.terms}
    cuts = pack([(row.group, len(row.prompt_ids), row.num_response_tokens) for row in rows], max_tokens, layout)
    micro_batches = tuple(_micro_batch(rows, cut, teachers, shares) for cut in cuts)
    return StepBatch(
        micro_batches=micro_batches,
        teachers=teachers,
        num_counted=sum(int(row.counted[objective.terms[0]].sum()) for row in rows),
        num_tokens=sum(row.num_tokens for row in rows),
        missing=_missing(rows, objective),
    )


def _rows(group: TrajectoryGroup, objective: Objective, number: int) -> Iterator[Row]:
    if not group.trajectories:
        return
    teacher = group.teacher or ""
    route = objective.route(teacher)
    advantages = group_advantages([t.score for t in group.trajectories], objective.spec.normalization)
    for trajectory, advantage in zip(group.trajectories, advantages, strict=True):
        known = Known(
            teacher_T=_finite(trajectory.teacher_logprobs, trajectory),
            behaviour_T=_finite(trajectory.behaviour_logprobs, trajectory),
            reference_T=_finite(trajectory.reference_logprobs, trajectory) | route.reference_is_base,
            candidates_T=np.any(_valued_candidates(trajectory), axis=1),
            scored=trajectory.score is not None,
            signal_needs_reference=objective.signal_needs_reference(route),
        )
        yield Row(
            group=number,
            prompt_ids=group.prompt_token_ids,
            trajectory=trajectory,
            teacher=teacher,
            route=route,
            group_advantage=float(advantage),
            asks_reference=objective.asks_reference(route),
            known=known,
            counted={term: counted(term, objective.spec, known) for term in objective.terms},
        )


def _shares(term: Term, rows: Sequence[Row], objective: Objective) -> NDArray[np.float64]:
    counts = np.array([row.counted[term].sum() for row in rows], dtype=np.int64)
    return objective.aggregation(counts, objective.max_tokens)


def _missing(rows: Sequence[Row], objective: Objective) -> Missing:
    compares = Term.DIVERGENCE in objective.terms
    return Missing(
        teacher=sum(int((~row.known.teacher_T).sum()) for row in rows),
        behaviour=sum(int((~row.known.behaviour_T).sum()) for row in rows),
        reference=sum(int((~row.known.reference_T).sum()) for row in rows if row.asks_reference),
        candidates=sum(_missing_candidates(row) for row in rows) if compares else 0,
        scores=sum(not row.known.scored for row in rows),
    )


def _missing_candidates(row: Row) -> int:
    named = row.trajectory.candidate_ids
    if named is None:
        return row.num_response_tokens
    there = np.asarray(named) >= 0
    without_value = int((there & ~_valued_candidates(row.trajectory)).sum())
    return without_value + int((~there.any(axis=1)).sum())


def _micro_batch(
    step_rows: Sequence[Row], cut: Cut, teachers: tuple[str, ...], shares: Mapping[Term, NDArray[np.float64]]
) -> MicroBatch:
    rows = [step_rows[index] for index in cut.rows]
    lengths = [row.num_response_tokens for row in rows]
    prompts, responses = [row.prompt_ids for row in rows], [row.trajectory.token_ids for row in rows]
    inputs, hidden_M = LAYOUTS[cut.layout]([row.group for row in rows], prompts, responses)
    samples = [row.trajectory for row in rows]
    candidate_ids_MK, candidate_teacher_MK = _candidates(samples)
    return MicroBatch(
        inputs=inputs,
        hidden_M=hidden_M,
        row_M=torch.tensor(np.repeat(np.arange(len(rows)), lengths), dtype=torch.int64),
        target_M=_flat([sample.token_ids for sample in samples], np.int64),
        teacher_M=_values([(s.teacher_logprobs, s) for s in samples]),
        behaviour_M=_values([(s.behaviour_logprobs, s) for s in samples]),
        reference_M=_values([(s.reference_logprobs, s) for s in samples]),
        teacher_known_M=_flat([row.known.teacher_T for row in rows], np.bool_),
        behaviour_known_M=_flat([row.known.behaviour_T for row in rows], np.bool_),
        reference_known_M=_flat([row.known.reference_T & row.asks_reference for row in rows], np.bool_),
        candidate_ids_MK=candidate_ids_MK,
        candidate_teacher_MK=candidate_teacher_MK,
        score_N=torch.tensor([np.nan if s.score is None else s.score for s in samples], dtype=torch.float64),
        group_advantage_N=torch.tensor([row.group_advantage for row in rows], dtype=torch.float32).nan_to_num(nan=0.0),
        reward_scale_N=torch.tensor([row.route.reward_scale for row in rows], dtype=torch.float32),
        reference_is_base_N=torch.tensor([row.route.reference_is_base and row.asks_reference for row in rows]),
        teacher_N=torch.tensor([teachers.index(row.teacher) for row in rows]),
        counted={term: _flat([row.counted[term] for row in rows], np.bool_) for term in shares},
        shares={
            term: torch.tensor(np.repeat(by_row[list(cut.rows)], lengths), dtype=torch.float32)
            for term, by_row in shares.items()
        },
    )


def _candidates(samples: Sequence[Trajectory]) -> tuple[Tensor, Tensor]:
    """Ids and the teacher's values of a micro-batch, [M, K] with the largest K of its samples."""
    widths = [0 if s.candidate_ids is None else s.candidate_ids.shape[1] for s in samples]
    num_tokens, width = sum(len(s.token_ids) for s in samples), max(widths)
    ids, values = np.zeros((num_tokens, width), np.int64), np.full((num_tokens, width), -np.inf, np.float32)
    start = 0
    for sample, own in zip(samples, widths, strict=True):
        end = start + len(sample.token_ids)
        if own:
            valued = _valued_candidates(sample)
            ids[start:end, :own] = np.where(valued, np.asarray(sample.candidate_ids), 0)
            values[start:end, :own] = np.where(valued, np.asarray(sample.candidate_teacher_logprobs), -np.inf)
        start = end
    return torch.from_numpy(ids), torch.from_numpy(values)


def _valued_candidates(trajectory: Trajectory) -> Mask:
    """Candidates with a finite teacher's value, [T, K]."""
    if trajectory.candidate_ids is None or trajectory.candidate_teacher_logprobs is None:
        return np.zeros((len(trajectory.token_ids), 1), np.bool_)
    named = np.asarray(trajectory.candidate_ids) >= 0
    valued: Mask = named & np.isfinite(np.asarray(trajectory.candidate_teacher_logprobs))
    return valued


def _finite(logprobs: LogProbs | None, trajectory: Trajectory) -> Mask:
    """[T]; values that did not come are none."""
    if logprobs is None:
        return np.zeros(len(trajectory.token_ids), np.bool_)
    finite: Mask = np.isfinite(np.asarray(logprobs))
    return finite


def _values(columns: Sequence[tuple[LogProbs | None, Trajectory]]) -> Tensor:
    """[M], 0 where a value is missing."""
    filled = [
        np.zeros(len(trajectory.token_ids)) if logprobs is None else np.asarray(logprobs)
        for logprobs, trajectory in columns
    ]
    return torch.nan_to_num(_flat(filled, np.float32), nan=0.0, posinf=0.0, neginf=0.0)


def _flat(arrays: Sequence[NDArray[Any]], dtype: type) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(array) for array in arrays]).astype(dtype))
