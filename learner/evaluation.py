"""Held-out accuracy: what one evaluation found, and what two of them say about training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from learner.storage import write_file
from potstill.contracts.generation import FinishReason
from potstill.contracts.job import EvalSpec, HeldoutResult
from potstill.contracts.trajectory import TrajectoryGroup

RESAMPLES = 10_000
INTERVAL = (2.5, 97.5)  # percentiles of a 95% interval
RESAMPLING_SEED = 0
RESAMPLES_AT_ONCE = 500


class ProblemResult(msgspec.Struct, frozen=True):
    problem_id: str
    accuracy: float | None  # share of verified samples that are correct; None when none could be verified
    scores: tuple[float | None, ...] = ()
    tokens: tuple[int, ...] = ()
    truncated: int = 0
    tombstone: str | None = None


class Evaluation(msgspec.Struct, frozen=True):
    """One evaluation, as `eval/step-000010.json` holds it."""

    step: int
    accuracy: float | None  # mean over problems
    interval: tuple[float, float] | None  # 95% bootstrap over problems
    mean_tokens: float | None
    truncated_share: float | None
    policy_versions: tuple[int, ...]
    num_unverified: int  # samples
    num_tombstones: int  # problems
    problems: tuple[ProblemResult, ...]


def is_due(spec: EvalSpec, step: int, last: int) -> bool:
    """Before the first step, every `every` steps, and after the last."""
    return step in (0, last) or (spec.every > 0 and step % spec.every == 0)


def evaluate(step: int, groups: Sequence[TrajectoryGroup], threshold: float) -> Evaluation:
    """Sum up the groups of one evaluation. A sample is correct when its score is above `threshold`."""
    problems = tuple(_problem(group, threshold) for group in groups)
    verified = np.array([p.accuracy for p in problems if p.accuracy is not None])
    samples = [t for group in groups for t in group.trajectories]
    return Evaluation(
        step=step,
        accuracy=float(verified.mean()) if len(verified) else None,
        interval=bootstrap_interval(verified) if len(verified) else None,
        mean_tokens=float(np.mean([len(t.token_ids) for t in samples])) if samples else None,
        truncated_share=sum(p.truncated for p in problems) / len(samples) if samples else None,
        policy_versions=tuple(sorted({t.policy_version for t in samples})),
        num_unverified=sum(t.score is None for t in samples),
        num_tombstones=sum(group.tombstone is not None for group in groups),
        problems=problems,
    )


def _problem(group: TrajectoryGroup, threshold: float) -> ProblemResult:
    scores = tuple(trajectory.score for trajectory in group.trajectories)
    correct = [score > threshold for score in scores if score is not None]
    return ProblemResult(
        problem_id=group.problem_id,
        accuracy=sum(correct) / len(correct) if correct else None,
        scores=scores,
        tokens=tuple(len(trajectory.token_ids) for trajectory in group.trajectories),
        truncated=sum(trajectory.finish_reason is FinishReason.LENGTH for trajectory in group.trajectories),
        tombstone=group.tombstone,
    )


def bootstrap_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """95% percentile interval of the mean: 10,000 resamples of the values, always the same ones."""
    generator = np.random.default_rng(RESAMPLING_SEED)
    means = [
        values[generator.integers(0, len(values), (RESAMPLES_AT_ONCE, len(values)))].mean(axis=1)
        for _ in range(RESAMPLES // RESAMPLES_AT_ONCE)
    ]
    low, high = np.percentile(np.concatenate(means), INTERVAL)
    return float(low), float(high)


def compare(before: Evaluation, after: Evaluation) -> HeldoutResult | None:
    """Accuracy before and after on the problems that both could verify, with a paired interval of the gain."""
    first = {p.problem_id: p.accuracy for p in before.problems if p.accuracy is not None}
    second = {p.problem_id: p.accuracy for p in after.problems if p.accuracy is not None}
    common = [name for name in first if name in second]
    if not common:
        return None
    befores, afters = (np.array([scores[name] for name in common]) for scores in (first, second))
    return HeldoutResult(
        n=len(common),
        before=float(befores.mean()),
        after=float(afters.mean()),
        gain=float((afters - befores).mean()),
        interval=bootstrap_interval(afters - befores),
        before_interval=bootstrap_interval(befores),
        after_interval=bootstrap_interval(afters),
    )


class EvaluationFiles:
    """`eval/step-000010.json` of one job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, step: int) -> bool:
        return self._path(step).exists()

    def write(self, evaluation: Evaluation) -> None:
        write_file(self._path(evaluation.step), msgspec.json.format(msgspec.json.encode(evaluation), indent=1))

    def read(self, step: int) -> Evaluation:
        return msgspec.json.decode(self._path(step).read_bytes(), type=Evaluation)

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:06d}.json"
