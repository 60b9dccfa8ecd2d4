"""Properties that every objective must have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.batch import step_batch
from learner.model import Student
from learner.objectives import GATES, resolve
from learner.objectives.aggregation import token_mean
from learner.objectives.importance import RATIOS, mismatch_kl
from learner.objectives.loss import clipped_policy_gradient
from learner.report import Stopwatch
from learner.update import accumulate_gradients
from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.objective import ObjectiveSpec
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup
from tests.learner.groups import group, random_groups, sample
from tests.learner.objectives.test_goldens import gradient

OPD, OPDVR = ObjectiveSpec(preset="opd"), ObjectiveSpec(preset="opdvr")
ROUNDING = {"rtol": 1e-3, "atol": 1e-5}


def changed(groups: Sequence[TrajectoryGroup], change: object, *, of: int = 0) -> list[TrajectoryGroup]:
    """`groups` with one sample, the first of group `of`, changed by a function."""
    first, *rest = groups[of].trajectories
    made: Trajectory = change(first)  # type: ignore[operator]
    return [
        msgspec.structs.replace(g, trajectories=(made, *rest)) if index == of else g for index, g in enumerate(groups)
    ]


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=20), st.booleans())
def test_correctness_gate_and_its_complement_make_the_signal(values: list[float], right: bool) -> None:
    signal_M = torch.tensor(values, dtype=torch.float64)
    correct_M = torch.full_like(signal_M, float(right)).bool()
    gate = GATES["correctness"].apply
    # The complement treats right samples as the gate treats wrong ones.
    assert torch.equal(gate(signal_M, correct_M) + gate(signal_M, ~correct_M), signal_M)


def test_a_score_at_the_threshold_is_wrong() -> None:
    objective = resolve(ObjectiveSpec(threshold=0.5))
    assert not objective.is_correct(0.5)
    assert objective.is_correct(0.5001)


@pytest.mark.parametrize("spec", [OPD, OPDVR, ObjectiveSpec(preset="opdvr", importance="sequence")])
class TestTheGradientDoesNotDependOnHowTheStepIsCut:
    def test_micro_batches_change_it_by_rounding_only(self, student: Student, spec: ObjectiveSpec) -> None:
        groups = random_groups(5)
        whole = gradient(student, groups, spec, tokens=10**6)
        for tokens in (1, 20, 45):  # one row each; a few; about half
            torch.testing.assert_close(gradient(student, groups, spec, tokens=tokens), whole, **ROUNDING)

    def test_order_changes_it_by_rounding_only(self, student: Student, spec: ObjectiveSpec) -> None:
        groups = random_groups(6)
        reversed_samples = [msgspec.structs.replace(g, trajectories=g.trajectories[::-1]) for g in groups[::-1]]
        torch.testing.assert_close(
            gradient(student, reversed_samples, spec, tokens=40), gradient(student, groups, spec, tokens=40), **ROUNDING
        )

    def test_padding_changes_it_by_rounding_only(self, student: Student, spec: ObjectiveSpec) -> None:
        groups = random_groups(7)
        longest = group([sample([7] * 60, teacher=[math.nan] * 60)], slot=99)  # pads all others, counts for nothing
        torch.testing.assert_close(
            gradient(student, [*groups, longest], spec, tokens=10**6),
            gradient(student, groups, spec, tokens=10**6),
            **ROUNDING,
        )

    def test_the_same_step_gives_the_same_bits(self, student: Student, spec: ObjectiveSpec) -> None:
        groups = random_groups(8)
        assert torch.equal(gradient(student, groups, spec), gradient(student, groups, spec))


def test_a_teacher_that_is_the_student_gives_no_gradient(student: Student) -> None:
    def with_own_logprobs() -> Iterator[TrajectoryGroup]:
        for g in random_groups(9):
            prompt = g.prompt_token_ids.tolist()
            samples = []
            for t in g.trajectories:
                ids = t.token_ids.tolist()
                with torch.no_grad():
                    logits = student.model(input_ids=torch.tensor([prompt + ids])).logits[0].double() / 0.7
                own = logits.log_softmax(-1)[range(len(prompt) - 1, len(prompt) + len(ids) - 1), ids]
                samples.append(msgspec.structs.replace(t, teacher_logprobs=LogProbs.of(own.numpy())))
            yield msgspec.structs.replace(g, trajectories=tuple(samples))

    spec = ObjectiveSpec(preset="opd", importance="off")
    assert (
        gradient(student, list(with_own_logprobs()), spec).abs().max()
        < 1e-4 * gradient(student, random_groups(9), spec).abs().max()
    )


@pytest.mark.parametrize("spec", [OPD, OPDVR])
class TestWhatChangesTheGradient:
    def test_another_teacher_does(self, student: Student, spec: ObjectiveSpec) -> None:
        groups = changed(random_groups(10), lambda t: msgspec.structs.replace(t, score=1.0))
        other = changed(
            groups,
            lambda t: msgspec.structs.replace(t, teacher_logprobs=LogProbs.of(np.zeros(len(t.token_ids)))),
        )
        assert not torch.equal(gradient(student, groups, spec), gradient(student, other, spec))

    def test_a_masked_tokens_values_do_not(self, student: Student, spec: ObjectiveSpec) -> None:
        def masked(teacher: float, behaviour: float) -> torch.Tensor:
            odd = sample([9, 8, 7], teacher=[-1.0, teacher, -2.0], behaviour=[-1.0, behaviour, -1.0])
            return gradient(student, [*random_groups(11), group([odd], slot=50)], spec)

        assert torch.equal(masked(math.nan, -1.0), masked(-math.inf, -1.0))
        assert torch.equal(masked(math.nan, -1.0), masked(-1.0, math.nan))
        assert not torch.equal(masked(math.nan, -1.0), masked(-1.0, -1.0))

    def test_an_unscored_sample_counts_only_where_no_score_is_needed(
        self, student: Student, spec: ObjectiveSpec
    ) -> None:
        unscored = group([sample([9, 8, 7], teacher=[-3.0] * 3, score=None)], slot=50)
        groups = random_groups(12)
        same = torch.equal(gradient(student, groups, spec), gradient(student, [*groups, unscored], spec))
        batch = step_batch([unscored], resolve(spec), 100)
        assert batch.num_unscored == 1
        assert batch.num_counted == (0 if spec.preset == "opdvr" else 3)
        if spec.preset == "opd":
            assert not same


class TestOddSteps:
    @pytest.mark.parametrize(
        "groups",
        [
            [group([sample([])])],
            [group([sample([]), sample([5, 6])])],
            [group([sample([5, 6], teacher=[math.nan, -math.inf])])],
            [group([sample([5, 6], score=None)] * 3)],
            [group([sample([5, 6], score=0.0)] * 3), group([sample([5, 6], score=1.0)] * 3, slot=1)],
            [group([sample([5, 6], behaviour=[-math.inf, math.nan])])],
            [group([sample([5, 6], teacher=[-1e30, -5e3], behaviour=[-1e30, -1e-30])])],
            [group([], tombstone="the teacher refused"), group([sample([5])], slot=1)],
        ],
        ids=["empty", "one empty", "no teacher", "no score", "no spread", "no behaviour", "extreme", "tombstone"],
    )
    @pytest.mark.parametrize("spec", [OPD, OPDVR, ObjectiveSpec(importance="sequence")])
    def test_gradient_is_finite_and_backward_runs(
        self, student: Student, groups: list[TrajectoryGroup], spec: ObjectiveSpec
    ) -> None:
        found = gradient(student, groups, spec, tokens=1)
        assert len(found) == sum(p.numel() for p in student.trainable()), "backward did not reach every parameter"
        assert found.isfinite().all()

    def test_what_could_not_be_had_is_counted(self) -> None:
        odd = sample([5, 6, 7], teacher=[math.nan, -math.inf, -1.0], behaviour=[-1.0, -1.0, math.nan], score=None)
        batch = step_batch([group([odd, sample([])])], resolve(OPD), 100)
        assert (batch.num_missing_teacher, batch.num_missing_behaviour, batch.num_unscored) == (2, 1, 1)
        assert batch.num_counted == 0

    def test_a_group_without_teacher_values_is_masked_and_counted(self) -> None:
        bare = msgspec.structs.replace(sample([5, 6]), teacher_logprobs=None)
        batch = step_batch([group([bare])], resolve(OPD), 100)
        assert (batch.num_missing_teacher, batch.num_counted) == (2, 0)


class TestImportance:
    def test_ratio_is_one_where_behaviour_is_the_student(self) -> None:
        for ratio in RATIOS.values():
            assert torch.equal(ratio(torch.zeros(4), torch.tensor([0, 0, 1, 1]), 2), torch.ones(4))

    def test_sequence_ratio_multiplies_a_samples_tokens(self) -> None:
        log_ratio = torch.tensor([0.1, 0.2, -0.5])
        found = RATIOS["sequence"](log_ratio, torch.tensor([0, 0, 1]), 2)
        torch.testing.assert_close(found, torch.tensor([0.3, 0.3, -0.5]).exp())

    @given(st.floats(-40, 40))
    def test_mismatch_is_never_negative(self, log_ratio: float) -> None:
        assert mismatch_kl(torch.tensor([log_ratio], dtype=torch.float64)).item() >= 0

    def test_weights_above_the_cap_are_cut_and_reported(self, student: Student) -> None:
        groups = [group([sample([5, 6], behaviour=[-60.0, -1e-3])])]
        objective = resolve(ObjectiveSpec(importance_cap=2.0))
        batch = step_batch(groups, objective, 100)
        statistics = accumulate_gradients(student, batch, objective, 1.0, stopwatch=Stopwatch(), check=lambda: None)
        numbers = statistics.numbers()
        assert numbers["importance_capped_share"] == 0.5
        assert (numbers["importance_max"] or 0) > 1e6
        assert 1.0 <= (numbers["importance_mean"] or 0) <= 1.5


class TestClippedPolicyGradient:
    @settings(max_examples=200)
    @given(st.floats(-3, 3), st.floats(-5, 5))
    def test_loss_is_the_papers_formula(self, log_ratio: float, advantage: float) -> None:
        ratio = math.exp(log_ratio)
        surrogate = min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
        expected = -(max(surrogate, 3.0 * advantage) if advantage < 0 else surrogate)
        tensors = [torch.tensor([value], dtype=torch.float64) for value in (log_ratio, 0.0, advantage)]
        found = clipped_policy_gradient(*tensors, clip_low=0.2, clip_high=0.2, dual_clip=3.0)
        assert found.item() == pytest.approx(expected, abs=1e-9)

    def test_first_update_is_reinforce(self) -> None:
        student = torch.tensor([-1.0, -2.0], requires_grad=True)
        advantage = torch.tensor([0.7, -0.3])
        loss = clipped_policy_gradient(student, student.detach(), advantage, clip_low=0.2, clip_high=0.2, dual_clip=3)
        loss.sum().backward()
        assert torch.equal(student.grad, -advantage)

    def test_an_enormous_ratio_stays_finite(self) -> None:
        student = torch.tensor([500.0, -500.0], requires_grad=True)
        loss = clipped_policy_gradient(
            student, torch.zeros(2), torch.tensor([-1.0, 1.0]), clip_low=0.2, clip_high=0.2, dual_clip=3.0
        )
        loss.sum().backward()
        assert loss.isfinite().all()
        assert student.grad.isfinite().all()


def test_token_mean_counts_the_whole_step() -> None:
    counted = torch.tensor([True, False, True])
    assert token_mean(torch.tensor([1.0, 100.0, 3.0]), counted, 8).item() == 0.5


def test_two_teachers_are_reported_apart(student: Student) -> None:
    groups = [
        group([sample([5, 6], teacher=[0.0, 0.0])], teacher="maths"),
        group([sample([5, 6], teacher=[-9.0, -9.0])], teacher="code", slot=1),
    ]
    objective = resolve(OPD)
    batch = step_batch(groups, objective, 100)
    numbers = accumulate_gradients(student, batch, objective, 1.0, stopwatch=Stopwatch(), check=lambda: None).numbers()
    maths, code = numbers["reverse_kl/maths"], numbers["reverse_kl/code"]
    assert maths is not None
    assert code is not None
    assert code - maths == pytest.approx(9.0, abs=1e-4)
    assert numbers["reverse_kl"] == pytest.approx((maths + code) / 2, abs=1e-4)


def test_gate_shares_are_split_by_right_and_wrong(student: Student) -> None:
    # Right samples lose tokens the teacher likes less; wrong ones lose tokens it likes more.
    right = sample([5, 6, 7, 8], teacher=[0.0, -99.0, -99.0, -99.0], score=1.0)
    wrong = sample([5, 6, 7, 8], teacher=[0.0, -99.0, -99.0, -99.0], score=0.0)
    objective = resolve(OPDVR)
    batch = step_batch([group([right, wrong])], objective, 100)
    numbers = accumulate_gradients(student, batch, objective, 1.0, stopwatch=Stopwatch(), check=lambda: None).numbers()
    assert numbers["gate_zeroed_share_right"] == 0.75
    assert numbers["gate_zeroed_share_wrong"] == 0.25
    assert numbers["gate_zeroed_share"] == 0.5


def test_token_ids_are_read_at_the_position_that_predicts_them() -> None:
    batch = step_batch([group([sample([7, 8])], prompt=[1, 2, 3])], resolve(OPD), 100)
    (micro,) = batch.micro_batches
    assert micro.input_ids_NL.tolist() == [[1, 2, 3, 7, 8]]
    assert micro.position_M.tolist() == [2, 3]
    assert micro.target_M.tolist() == [7, 8]
    assert TokenIds.of([7]).dtype == np.int32
