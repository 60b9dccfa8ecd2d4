"""Two evaluations of the same problems: what changed, with paired intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from potstill.contracts.job import Change
from potstill.evaluation.bootstrap import bootstrap_interval
from potstill.evaluation.estimators import pass_at_k
from potstill.evaluation.results import ProblemResult
from potstill.evaluation.scores import majorities

Values = Sequence[float | None]  # one a problem


def compare_average(before: Sequence[ProblemResult], after: Sequence[ProblemResult]) -> Change | None:
    """avg@n before and after; None when no problem has both."""
    return _compare(before, after, lambda problems: [problem.accuracy for problem in problems])


def compare_passed(before: Sequence[ProblemResult], after: Sequence[ProblemResult], k: int) -> Change | None:
    """pass@k before and after."""
    return _compare(before, after, lambda problems: [pass_at_k(problem.verified, k) for problem in problems])


def compare_majority(before: Sequence[ProblemResult], after: Sequence[ProblemResult]) -> Change | None:
    """maj@n before and after."""
    return _compare(before, after, majorities)


def _compare(
    before: Sequence[ProblemResult],
    after: Sequence[ProblemResult],
    measure: Callable[[Sequence[ProblemResult]], Values],
) -> Change | None:
    """Over the problems that both have a value for; the interval of the gain is that of their differences."""
    first, second = _by_problem(before, measure), _by_problem(after, measure)
    common = [name for name in first if name in second]
    if not common:
        return None
    befores, afters = (np.array([values[name] for name in common]) for values in (first, second))
    return Change(
        n=len(common),
        before=float(befores.mean()),
        after=float(afters.mean()),
        gain=float((afters - befores).mean()),
        interval=bootstrap_interval(afters - befores),
        before_interval=bootstrap_interval(befores),
        after_interval=bootstrap_interval(afters),
    )


def _by_problem(
    problems: Sequence[ProblemResult], measure: Callable[[Sequence[ProblemResult]], Values]
) -> dict[tuple[str, str], float]:
    values = zip(problems, measure(problems), strict=True)
    return {(problem.data_source, problem.problem_id): value for problem, value in values if value is not None}
