"""Held-out evaluation in the loop: what one found, and what the first and the last say about training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from learner.storage import write_file
from potstill.contracts.job import Change, EvalSpec, HeldoutResult
from potstill.contracts.problem import Problem
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup
from potstill.evaluation.comparison import compare_average, compare_majority, compare_passed
from potstill.evaluation.results import ProblemResult, SampleResult, by_data_source, problem_result
from potstill.evaluation.scores import Estimate, Scores, score, score_data_sets


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
    samples: int = 1  # a problem
    pass_at_n: float | None = None
    maj_at_n: float | None = None
    data_sets: tuple[Scores, ...] = ()

    def numbers(self) -> dict[str, float | None]:
        """What is reported with the step; pass@n and maj@n where they say more than the accuracy."""
        several = self.samples > 1
        return {
            "heldout_accuracy": self.accuracy,
            "heldout_pass_at_n": self.pass_at_n if several else None,
            "heldout_maj_at_n": self.maj_at_n if several else None,
            "heldout_response_tokens": self.mean_tokens,
            "heldout_truncated_share": self.truncated_share,
            "heldout_unverified_samples": self.num_unverified,
        }

    def line(self) -> str:
        """In words: `41.2%`, and with several samples a problem ` (pass@4 60.0%, maj@4 45.0%)`."""
        more = {"pass": self.pass_at_n, "maj": self.maj_at_n} if self.samples > 1 else {}
        told = [f"{name}@{self.samples} {value:.1%}" for name, value in more.items() if value is not None]
        accuracy = "unknown" if self.accuracy is None else f"{self.accuracy:.1%}"
        return accuracy + (f" ({', '.join(told)})" if told else "")


def is_due(spec: EvalSpec, step: int, last: int) -> bool:
    """Before the first step, every `every` steps, and after the last."""
    return step in (0, last) or (spec.every > 0 and step % spec.every == 0)


def evaluate(step: int, groups: Sequence[TrajectoryGroup], problems: Sequence[Problem], threshold: float) -> Evaluation:
    """Sum up the groups of one evaluation, one a problem. A sample is correct when its score is above `threshold`."""
    results = [
        problem_result(
            problem.id,
            problem.data_source,
            [_judged(sample, threshold) for sample in group.trajectories],
            group.tombstone,
        )
        for group, problem in zip(groups, problems, strict=True)
    ]
    total = score("all", results)
    return Evaluation(
        step=step,
        accuracy=_value(total.average),
        interval=total.average.interval if total.average else None,
        mean_tokens=total.mean_tokens,
        truncated_share=total.truncated_share,
        policy_versions=tuple(sorted({t.policy_version for group in groups for t in group.trajectories})),
        num_unverified=total.unverified_samples,
        num_tombstones=total.tombstones,
        problems=tuple(results),
        samples=total.n,
        pass_at_n=_value(total.pass_at_n),
        maj_at_n=_value(total.majority),
        data_sets=score_data_sets(results),
    )


def _judged(sample: Trajectory, threshold: float) -> SampleResult:
    correct = None if sample.score is None else sample.score > threshold
    return SampleResult(sample.score, correct, len(sample.token_ids), sample.finish_reason, sample.answer)


def _value(estimate: Estimate | None) -> float | None:
    return estimate.value if estimate else None


def compare(before: Evaluation, after: Evaluation) -> HeldoutResult | None:
    """Before and after on the problems that both could verify, with paired intervals of the gains."""
    accuracy = compare_average(before.problems, after.problems)
    if accuracy is None:
        return None
    n = min(before.samples, after.samples)
    return HeldoutResult(
        **accuracy.model_dump(),
        samples=n,
        pass_at_n=compare_passed(before.problems, after.problems, n) if n > 1 else None,
        maj_at_n=compare_majority(before.problems, after.problems) if n > 1 else None,
        data_sets=_compare_data_sets(before, after),
    )


def _compare_data_sets(before: Evaluation, after: Evaluation) -> dict[str, Change]:
    first, second = by_data_source(before.problems), by_data_source(after.problems)
    if len(first) < 2:
        return {}
    changes = {name: compare_average(problems, second.get(name, [])) for name, problems in first.items()}
    return {name: change for name, change in changes.items() if change is not None}


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
