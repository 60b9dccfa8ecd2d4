from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from learner.evaluation import Evaluation, EvaluationFiles, bootstrap_interval, compare, evaluate, is_due
from potstill.contracts.generation import FinishReason
from potstill.contracts.job import EvalSpec
from potstill.contracts.ticket import Phase
from tests.learner.groups import group, sample


def evaluation(step: int, accuracies: list[float | None]) -> Evaluation:
    groups = [
        group([sample([5], score=score)], slot=slot, phase=Phase.EVAL, step=step)
        for slot, score in enumerate(accuracies)
    ]
    return evaluate(step, groups, 0.0)


def test_evaluations_are_due_before_every_so_often_and_after() -> None:
    assert [s for s in range(8) if is_due(EvalSpec(every=3), s, 7)] == [0, 3, 6, 7]
    assert [s for s in range(8) if is_due(EvalSpec(every=0), s, 7)] == [0, 7]


def test_accuracy_is_the_mean_over_problems_of_their_verified_samples() -> None:
    groups = [
        group([sample([5], score=1.0), sample([5, 6], score=0.0)], slot=0),
        group([sample([5], score=1.0), sample([5], score=None, finish=FinishReason.LENGTH)], slot=1),
        group([sample([5], score=None)], slot=2),
        group([], slot=3, tombstone="the verifier refused"),
    ]
    found = evaluate(4, groups, threshold=0.0)
    assert [problem.accuracy for problem in found.problems] == [0.5, 1.0, None, None]
    assert found.accuracy == 0.75
    assert (found.num_unverified, found.num_tombstones) == (2, 1)
    assert found.truncated_share == pytest.approx(1 / 5)


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        low, high = bootstrap_interval(generator.binomial(1, 0.4, 80).astype(float))
        covered += low <= 0.4 <= high
    assert 0.90 <= covered / 200 <= 0.99


def test_gain_is_paired_over_the_problems_that_both_could_verify() -> None:
    before = evaluation(0, [0.0, 0.0, 1.0, None, 0.0] * 8)
    after = evaluation(9, [1.0, 0.0, 1.0, 1.0, None] * 8)
    result = compare(before, after)
    assert result is not None
    assert result.n == 24
    assert result.before == pytest.approx(1 / 3)
    assert result.after == pytest.approx(2 / 3)
    assert result.gain == pytest.approx(1 / 3)
    assert 0 < result.interval[0] < result.gain < result.interval[1]
    # Every problem changed alike: paired, there is nothing to be unsure of.
    certain = compare(evaluation(0, [0.0] * 30), evaluation(9, [1.0] * 30))
    assert certain is not None
    assert certain.interval == (1.0, 1.0)


def test_nothing_verified_is_no_result() -> None:
    assert evaluation(0, [None]).accuracy is None
    assert compare(evaluation(0, [None]), evaluation(9, [1.0])) is None


def test_results_come_back_from_disk(tmp_path: Path) -> None:
    files, found = EvaluationFiles(tmp_path / "eval"), evaluation(10, [1.0, None, 0.0])
    assert not files.has(10)
    files.write(found)
    assert files.has(10)
    assert files.read(10) == found
