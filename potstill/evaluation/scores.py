"""avg@n, pass@k and maj@n of a data set, with intervals over its problems."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from potstill.evaluation.bootstrap import bootstrap_interval, macro_interval
from potstill.evaluation.estimators import majority_correct, pass_at_k
from potstill.evaluation.results import ProblemResult, by_data_source


class Estimate(msgspec.Struct, frozen=True):
    value: float  # mean over problems
    interval: tuple[float, float]  # 95% bootstrap over problems
    problems: int  # those it could be had for


class Scores(msgspec.Struct, frozen=True):
    """What the samples of one data set come to; an estimate is None where no problem gives one."""

    data_source: str
    n: int  # samples a problem
    problems: int
    average: Estimate | None  # avg@n
    passed: dict[int, Estimate]  # k to pass@k
    majority: Estimate | None  # maj@n; None also where the verifier takes no answers, as of code
    mean_tokens: float | None
    truncated_share: float | None
    unverified_samples: int
    tombstones: int  # problems that gave no samples at all

    @property
    def pass_at_n(self) -> Estimate | None:
        return self.passed.get(self.n)


def score_data_sets(problems: Sequence[ProblemResult]) -> tuple[Scores, ...]:
    """One entry a data set, in the order in which they appear."""
    return tuple(score(source, members) for source, members in by_data_source(problems).items())


def score(data_source: str, problems: Sequence[ProblemResult]) -> Scores:
    """Sum up problems as one data set."""
    n = max((len(problem.correct) for problem in problems), default=0)
    tokens = [count for problem in problems for count in problem.tokens]
    passed = {k: _estimate([pass_at_k(problem.verified, k) for problem in problems]) for k in sample_counts(n)}
    return Scores(
        data_source=data_source,
        n=n,
        problems=len(problems),
        average=_estimate([problem.accuracy for problem in problems]),
        passed={k: estimate for k, estimate in passed.items() if estimate is not None},
        majority=_estimate(majorities(problems)),
        mean_tokens=sum(tokens) / len(tokens) if tokens else None,
        truncated_share=sum(problem.truncated for problem in problems) / len(tokens) if tokens else None,
        unverified_samples=sum(right is None for problem in problems for right in problem.correct),
        tombstones=sum(problem.tombstone is not None for problem in problems),
    )


def sample_counts(n: int) -> list[int]:
    """The k of pass@k: powers of two, and n itself."""
    return sorted({2**power for power in range(n.bit_length()) if 2**power <= n} | {n} - {0})


def majorities(problems: Sequence[ProblemResult]) -> list[float | None]:
    """maj@n of each problem; all None where the verifier states no answer in the whole data set."""
    if not any(answer is not None for problem in problems for answer in problem.answers):
        return [None] * len(problems)
    return [majority_correct(problem.verified_answers, problem.verified) for problem in problems]


def macro_average(problems: Sequence[ProblemResult]) -> Estimate | None:
    """Mean over data sets of avg@n, each data set with the same weight, as results over several are published."""
    groups = [
        [problem.accuracy for problem in members if problem.accuracy is not None]
        for members in by_data_source(problems).values()
    ]
    if not groups or not all(groups):
        return None
    value = sum(sum(group) / len(group) for group in groups) / len(groups)
    return Estimate(value, macro_interval(groups), sum(map(len, groups)))


def _estimate(values: Sequence[float | None]) -> Estimate | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Estimate(sum(known) / len(known), bootstrap_interval(known), len(known))
