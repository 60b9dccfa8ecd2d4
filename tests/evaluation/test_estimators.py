"""The estimators against what they estimate, computed by going through every case."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.evaluation.bootstrap import bootstrap_interval, macro_interval
from potstill.evaluation.estimators import majority_correct, mean_correct, pass_at_k

verdicts = st.lists(st.booleans(), min_size=1, max_size=8)


@given(verdicts)
def test_the_average_is_the_share_of_correct_samples(correct: list[bool]) -> None:
    assert mean_correct(correct) == np.mean(correct)


@given(verdicts, st.integers(1, 8))
def test_pass_at_k_is_the_share_of_all_draws_of_k_with_a_correct_one(correct: list[bool], k: int) -> None:
    draws = list(combinations(correct, k))
    expected = np.mean([any(draw) for draw in draws]) if draws else None
    found = pass_at_k(correct, k)
    assert found is None if expected is None else found == pytest.approx(expected, abs=1e-12)


@given(st.integers(1, 5), st.lists(st.floats(0, 1), min_size=1, max_size=3))
def test_pass_at_k_has_no_bias(k: int, chances: list[float]) -> None:
    """Over every outcome of n samples, weighted by its probability, it comes to 1 - (1 - p)^k."""
    n = k + 2
    for p in chances:
        outcomes = [[bool(bits >> i & 1) for i in range(n)] for bits in range(2**n)]
        expectation = 0.0
        for outcome in outcomes:
            value = pass_at_k(outcome, k)
            assert value is not None
            expectation += p ** sum(outcome) * (1 - p) ** (n - sum(outcome)) * value
        assert expectation == pytest.approx(1 - (1 - p) ** k, abs=1e-9)


def test_pass_at_k_stays_exact_for_many_samples() -> None:
    assert pass_at_k([True] + [False] * 9_999, 100) == pytest.approx(0.01, abs=1e-12)
    with pytest.raises(ValueError, match="at least one"):
        pass_at_k([True], 0)


@given(st.lists(st.sampled_from(["4", "5", "6", None]), min_size=1, max_size=6), st.sampled_from(["4", "5", "6"]))
def test_the_majority_is_what_a_fair_count_of_votes_gives(answers: list[str | None], reference: str) -> None:
    """A tie goes to the answer that comes first, over every order of the samples alike."""
    winners = []
    for order in permutations(range(len(answers))):
        votes = [answers[i] for i in order if answers[i] is not None]
        winners.append(max(votes, key=votes.count) == reference if votes else False)
    tied = {vote for vote in answers if vote and answers.count(vote) == max(map(answers.count, filter(None, answers)))}
    expected = float(reference in tied) / len(tied) if tied else 0.0
    found = majority_correct(answers, [answer == reference for answer in answers])
    assert found == pytest.approx(expected)
    # The first-come count agrees with the expectation on average over all orders.
    assert np.mean(winners) == pytest.approx(expected)


def test_nothing_verified_is_no_estimate() -> None:
    assert (mean_correct([]), pass_at_k([], 1), majority_correct([], [])) == (None, None, None)


def test_an_interval_is_the_same_whenever_it_is_asked_for() -> None:
    values = np.random.default_rng(0).random(40)
    assert bootstrap_interval(values) == bootstrap_interval(values.copy())
    assert macro_interval([values, values[:7]]) == macro_interval([values, values[:7]])


def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        low, high = bootstrap_interval(generator.binomial(1, 0.4, 80).astype(float))
        covered += low <= 0.4 <= high
    assert 0.88 <= covered / 100 <= 1.0


def test_the_interval_over_data_sets_weighs_each_alike() -> None:
    low, high = macro_interval([np.zeros(50), np.ones(3)])
    assert low == high == 0.5
    wide = macro_interval([np.arange(2) % 2, np.ones(1000)])
    assert wide[0] <= 0.5
    assert wide[1] == 1.0
