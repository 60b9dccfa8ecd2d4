"""Estimates for one problem from its verified samples. A sample that could not be verified is no part of any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def mean_correct(correct: Sequence[bool]) -> float | None:
    """avg@n: the share of the n samples that are correct; None without samples."""
    return sum(correct) / len(correct) if correct else None


def pass_at_k(correct: Sequence[bool], k: int) -> float | None:
    """The chance that at least one of k samples is correct, without bias; None with fewer than k samples.

    With n samples of which c are correct it is 1 - C(n-c, k) / C(n, k) (Chen et al., arXiv 2107.03374), computed as a
    product, so that nothing overflows.
    """
    if k < 1:
        raise ValueError(f"k is {k}, but at least one sample is drawn")
    n, wrong = len(correct), len(correct) - sum(correct)
    if n < k:
        return None
    none_correct = 1.0
    for drawn in range(k):
        none_correct *= max(0, wrong - drawn) / (n - drawn)
    return 1.0 - none_correct


def majority_correct(answers: Sequence[str | None], correct: Sequence[bool]) -> float | None:
    """maj@n: whether the answer that most of the n samples state is correct; None without samples.

    A sample without an answer does not vote, and without a vote the problem is wrong. A tie is broken at random: the
    value is its expectation.
    """
    if not correct:
        return None
    votes = Counter(answer for answer in answers if answer is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    leading = [answer for answer, count in votes.items() if count == most]
    return sum(_is_right(answer, answers, correct) for answer in leading) / len(leading)


def _is_right(answer: str, answers: Sequence[str | None], correct: Sequence[bool]) -> float:
    """Share of the samples with this answer that were judged correct: 0 or 1 unless the verifier contradicts itself."""
    judged = [right for stated, right in zip(answers, correct, strict=True) if stated == answer]
    return sum(judged) / len(judged)
