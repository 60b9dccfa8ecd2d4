"""What is kept of one problem."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from potstill.contracts.generation import FinishReason
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


class SampleResult(msgspec.Struct, frozen=True):
    """One sample: its judgement, and how it ended."""

    score: float | None  # None: could not be verified
    correct: bool | None  # None exactly when the score is
    tokens: int
    finish_reason: FinishReason
    answer: str | None = None  # what the verifier took for the answer


def problem_result(
    problem_id: str, data_source: str, samples: Sequence[SampleResult], tombstone: str | None
) -> ProblemResult:
    """Sum up the samples of one problem."""
    return ProblemResult(
        problem_id=problem_id,
        accuracy=mean_correct([sample.correct for sample in samples if sample.correct is not None]),
        scores=tuple(sample.score for sample in samples),
        tokens=tuple(sample.tokens for sample in samples),
        truncated=sum(sample.finish_reason is FinishReason.LENGTH for sample in samples),
        tombstone=tombstone,
        data_source=data_source or UNNAMED,
        correct=tuple(sample.correct for sample in samples),
        answers=tuple(sample.answer for sample in samples),
    )


def by_data_source(problems: Sequence[ProblemResult]) -> dict[str, list[ProblemResult]]:
    """The problems of each data set, in the order in which the data sets appear."""
    found: dict[str, list[ProblemResult]] = {}
    for problem in problems:
        found.setdefault(problem.data_source, []).append(problem)
    return found
