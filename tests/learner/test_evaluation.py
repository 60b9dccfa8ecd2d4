from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from learner.evaluation import Evaluation, EvaluationFiles, compare, evaluate, is_due
from potstill.contracts.generation import FinishReason
from potstill.contracts.job import EvalSpec
from potstill.contracts.problem import Problem
from potstill.contracts.ticket import Phase
from potstill.contracts.trajectory import TrajectoryGroup
from tests.learner.groups import group, sample


def problems_of(groups: Sequence[TrajectoryGroup], *sources: str) -> list[Problem]:
    names = sources or ("",) * len(groups)
    return [Problem(group.problem_id, (), data_source=name) for group, name in zip(groups, names, strict=True)]


def evaluation(step: int, accuracies: list[float | None]) -> Evaluation:
    groups = [
        group([sample([5], score=score)], slot=slot, phase=Phase.EVAL, step=step)
        for slot, score in enumerate(accuracies)
    ]
    return evaluate(step, groups, problems_of(groups), 0.0)


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
    found = evaluate(4, groups, problems_of(groups), threshold=0.0)
    assert [problem.accuracy for problem in found.problems] == [0.5, 1.0, None, None]
    assert found.accuracy == 0.75
    assert (found.num_unverified, found.num_tombstones) == (2, 1)
    assert found.truncated_share == pytest.approx(1 / 5)


def test_several_samples_a_problem_give_pass_and_majority_too() -> None:
    right, wrong, unknown = (partial(sample, [5], score=score) for score in (1.0, 0.0, None))
    groups = [
        group([right(answer="4"), wrong(answer="5"), wrong(answer="5")], slot=0),
        group([right(answer="4"), right(answer="4"), wrong(answer="5")], slot=1),
        group([right(answer="4"), right(answer="4"), unknown()], slot=2),
    ]
    before = evaluate(0, groups, problems_of(groups, "amc", "amc", "aime"), 0.0)
    assert before.accuracy == pytest.approx((1 / 3 + 2 / 3 + 1) / 3)
    assert before.pass_at_n == 1.0, "of the two problems with three verified samples"
    assert before.maj_at_n == pytest.approx(2 / 3)
    assert before.line() == "66.7% (pass@3 100.0%, maj@3 66.7%)"
    assert [(scores.data_source, scores.problems) for scores in before.data_sets] == [("amc", 2), ("aime", 1)]
    assert before.numbers()["heldout_unverified_samples"] == 1
    after = evaluate(9, [*groups[1:], groups[0]], problems_of([*groups[1:], groups[0]], "amc", "aime", "amc"), 0.0)
    result = compare(before, after)
    assert result is not None
    assert (result.samples, result.gain, result.data_sets["amc"].n) == (3, 0.0, 2)
    assert result.pass_at_n is not None
    assert result.pass_at_n.n == 2
    assert result.maj_at_n is not None


def test_answers_are_no_part_of_results_where_the_verifier_takes_none() -> None:
    groups = [group([sample([5], score=1.0), sample([5], score=0.0)])]
    found = evaluate(0, groups, problems_of(groups), 0.0)
    assert (found.accuracy, found.pass_at_n, found.maj_at_n) == (0.5, 1.0, None)


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
