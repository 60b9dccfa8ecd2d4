"""What is kept of one problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from potstill.contracts.generation import FinishReason
from potstill.contracts.problem import Problem
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup
from potstill.evaluation.estimators import mean_correct

UNNAMED = "data"  # the data set of rows without a data_source


class ProblemResult(msgspec.Struct, frozen=True):
    """The samples of one problem, an entry each in `scores`, `correct`, `answers` and `tokens`."""

    problem_id: str
    accuracy: float | None  # share of verified samples that are correct; None when none could be verified
    scores: tuple[float | None, ...] = ()
    tokens: tuple[int, ...] = ()
    truncated: int = 0
    tombstone: str | None = None
    data_source: str = UNNAMED
    correct: tuple[bool | None, ...] = ()  # None: could not be verified
    answers: tuple[str | None, ...] = ()

    @property
    def verified(self) -> list[bool]:
        """The samples that were verified: whether each is correct."""
        return [right for right in self.correct if right is not None]

    @property
    def verified_answers(self) -> list[str | None]:
        """Their answers, in the same order."""
        return [answer for answer, right in zip(self.answers, self.correct, strict=True) if right is not None]


def problem_result(group: TrajectoryGroup, problem: Problem, is_correct: Callable[[Trajectory], bool]) -> ProblemResult:
    """Sum up one group; `is_correct` is asked about samples that have a score."""
    samples = group.trajectories
    correct = tuple(is_correct(sample) if sample.score is not None else None for sample in samples)
    return ProblemResult(
        problem_id=group.problem_id,
        accuracy=mean_correct([right for right in correct if right is not None]),
        scores=tuple(sample.score for sample in samples),
        tokens=tuple(len(sample.token_ids) for sample in samples),
        truncated=sum(sample.finish_reason is FinishReason.LENGTH for sample in samples),
        tombstone=group.tombstone,
        data_source=problem.data_source or UNNAMED,
        correct=correct,
        answers=tuple(sample.answer for sample in samples),
    )


def by_data_source(problems: Sequence[ProblemResult]) -> dict[str, list[ProblemResult]]:
    """The problems of each data set, in the order in which the data sets appear."""
    found: dict[str, list[ProblemResult]] = {}
    for problem in problems:
        found.setdefault(problem.data_source, []).append(problem)
    return found
