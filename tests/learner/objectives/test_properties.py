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

from learner.batch import Missing, step_batch
from learner.model import Student
from learner.objectives import AGGREGATIONS, GATES, RATIOS, Route, resolve
from learner.objectives.group import group_advantages, magnitude
from learner.objectives.importance import mismatch_kl
from learner.objectives.loss import clipped_policy_gradient
from learner.report import OF_GROUPS, Stopwatch, sample_numbers
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
    advantage_M = torch.zeros_like(signal_M)
    kept, left = (GATES[name](signal_M, correct_M, advantage_M) for name in ("correctness", "inverse"))
    assert torch.equal(kept + left, signal_M)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=20), st.integers(1, 7), st.sampled_from(["std", "mean"]))
def test_relative_and_correctness_agree_in_mixed_binary_groups(values: list[float], right: int, how: str) -> None:
    signal_M = torch.tensor(values, dtype=torch.float64)
    scores = [1.0] * right + [0.0] * (8 - right)
    for score, advantage in zip(scores, group_advantages(scores, how), strict=True):
        parts = signal_M, torch.full_like(signal_M, score).bool(), torch.full_like(signal_M, advantage)
        assert torch.equal(GATES["relative"](*parts), GATES["correctness"](*parts))


@pytest.mark.parametrize("score", [0.0, 1.0, 0.1])
def test_a_uniform_group_has_advantage_zero_and_keeps_u_of_its_signal(student: Student, score: float) -> None:
    assert group_advantages([score] * 3, "std").tolist() == [0.0] * 3
    groups = [group([sample([5, 6], teacher=[-0.1, -9.0], score=score)] * 3)]
    dropped = gradient(student, groups, ObjectiveSpec(preset="grpd"))
    kept = gradient(student, groups, ObjectiveSpec(preset="grpd", group_scale_offset=0.25))
    assert dropped.abs().max() == 0
    whole = gradient(student, groups, OPDVR)
    torch.testing.assert_close(kept, 0.25 * whole, rtol=1e-5, atol=1e-7)


def test_group_advantage_leaves_out_what_could_not_be_verified() -> None:
    found = group_advantages([1.0, None, 0.0, 0.0], "std")
    without = group_advantages([1.0, 0.0, 0.0], "std")
    assert np.isnan(found[1])
    assert found[[0, 2, 3]].tolist() == without.tolist()
    assert without[0] == pytest.approx((2 / 3) / (math.sqrt(1 / 3) + 1e-6))
    assert group_advantages([1.0, 0.0, 0.0], "mean").tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert group_advantages([None, 0.7], "std")[1] == 0.7
    assert magnitude(torch.tensor([-2.0, 0.0]), 0.5).tolist() == [2.5, 0.5]


def test_a_score_at_the_threshold_is_wrong() -> None:
    objective = resolve(ObjectiveSpec(threshold=0.5))
    assert not objective.is_correct(0.5)
    assert objective.is_correct(0.5001)


WHOLE = ObjectiveSpec(  # every part that looks beyond its own token
    preset="grpd",
    signal="gopd",
    outcome_weight=0.5,
    baseline="mean",
    reference_kl="k3",
    entropy_weight=0.1,
    aggregation="sequence_mean_token_mean",
)
SUMS = ObjectiveSpec(preset="opd+grpo", gate="relative", aggregation="sequence_mean_token_sum")
TOPK = ObjectiveSpec(preset="topk-opd", divergence="jsd", reference_kl="k2", group_scale="magnitude")


@pytest.mark.parametrize(
    "spec",
    [OPD, OPDVR, ObjectiveSpec(preset="opdvr", importance="sequence"), WHOLE, SUMS, TOPK],
    ids=["opd", "opdvr", "sequence", "whole", "sums", "topk"],
)
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
        if spec.entropy_weight:
            longest = group([sample([])], prompt=[7] * 60, slot=99)  # entropy needs no value of anybody
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


@pytest.mark.parametrize("spec", [OPD, OPDVR], ids=["opd", "opdvr"])
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
        assert batch.missing.scores == 1
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
    @pytest.mark.parametrize(
        "spec",
        [OPD, OPDVR, ObjectiveSpec(importance="sequence"), WHOLE, SUMS, TOPK],
        ids=["opd", "opdvr", "sequence", "whole", "sums", "topk"],
    )
    def test_gradient_is_finite_and_backward_runs(
        self, student: Student, groups: list[TrajectoryGroup], spec: ObjectiveSpec
    ) -> None:
        found = gradient(student, groups, spec, tokens=1)
        assert len(found) == sum(p.numel() for p in student.trainable()), "backward did not reach every parameter"
        assert found.isfinite().all()

    def test_what_could_not_be_had_is_counted(self) -> None:
        odd = sample([5, 6, 7], teacher=[math.nan, -math.inf, -1.0], behaviour=[-1.0, -1.0, math.nan], score=None)
        batch = step_batch([group([odd, sample([])])], resolve(OPD), 100)
        assert batch.missing == Missing(teacher=2, behaviour=1, reference=0, candidates=0, scores=1)
        assert batch.num_counted == 0

    def test_missing_references_are_counted_where_the_objective_asks_for_them(self) -> None:
        groups = [group([sample([5, 6, 7], reference=[math.nan, -math.inf, -1.0]), sample([5])])]
        exopd = step_batch(groups, resolve(ObjectiveSpec(preset="exopd")), 100)
        assert (exopd.missing.reference, exopd.num_counted) == (3, 1)
        near = step_batch(groups, resolve(ObjectiveSpec(reference_kl="k2")), 100)
        assert (near.missing.reference, near.num_counted) == (3, 4)
        one = step_batch(groups, resolve(ObjectiveSpec(preset="exopd"), routes={"maths": Route(1.0)}), 100)
        assert (one.missing.reference, one.num_counted) == (0, 4)

    def test_missing_candidates_are_counted_and_their_mass_is_in_the_tail(self) -> None:
        odd = sample(
            [5, 6, 7],
            candidates=[[8, 9], [8, -1], [-1, -1]],
            candidate_teacher=[[-0.5, -math.inf], [math.nan, math.nan], [math.nan, math.nan]],
        )
        batch = step_batch([group([odd, sample([5, 6])])], resolve(ObjectiveSpec(preset="topk-opd")), 100)
        assert batch.missing.candidates == 1 + 1 + 1 + 2  # no value twice, then three positions without a candidate
        assert batch.num_counted == 1

    def test_a_group_without_teacher_values_is_masked_and_counted(self) -> None:
        bare = msgspec.structs.replace(sample([5, 6]), teacher_logprobs=None)
        batch = step_batch([group([bare])], resolve(OPD), 100)
        assert (batch.missing.teacher, batch.num_counted) == (2, 0)


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


def test_shares_of_a_token_count_the_whole_step() -> None:
    counts = np.array([1, 0, 3])
    assert AGGREGATIONS["token_mean"](counts, 10).tolist() == [1 / 4] * 3
    assert AGGREGATIONS["sequence_mean_token_mean"](counts, 10)[[0, 2]].tolist() == [1 / 2, 1 / 6]
    assert AGGREGATIONS["sequence_mean_token_sum"](counts, 10).tolist() == [1 / 20] * 3


def test_each_term_has_its_own_denominator(student: Student) -> None:
    """The reference KL of one token of two is its mean over that one, however many the main term counts."""
    both = [group([sample([5, 6], teacher=[math.nan] * 2, reference=[-1.0, -3.0])])]
    first = [group([sample([5, 6], teacher=[math.nan] * 2, reference=[-1.0, math.nan])])]
    second = [group([sample([5, 6], teacher=[math.nan] * 2, reference=[math.nan, -3.0])])]
    spec = ObjectiveSpec(reference_kl="k2", importance="off")
    whole, one, other = (gradient(student, groups, spec) for groups in (both, first, second))
    torch.testing.assert_close(whole, (one + other) / 2, rtol=1e-4, atol=1e-7)


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


def test_gate_and_group_numbers_are_told_by_teacher(student: Student) -> None:
    liked, disliked = [0.0, 0.0], [-99.0, -99.0]
    right, wrong = sample([5, 6], teacher=disliked, score=1.0), sample([5, 6], teacher=disliked, score=0.0)
    groups = [
        group([right, wrong], teacher="maths"),
        group([right, right], teacher="maths", slot=1),
        group([sample([5, 6], teacher=liked, score=0.0)], teacher="code", slot=2),
        group([], teacher="logic", slot=3, tombstone="too long"),
    ]
    objective = resolve(OPDVR)
    batch = step_batch(groups, objective, 6)  # several micro-batches
    assert len(batch.micro_batches) > 1
    numbers = accumulate_gradients(student, batch, objective, 1.0, stopwatch=Stopwatch(), check=lambda: None).numbers()
    numbers |= sample_numbers(1, groups, objective)
    told = {
        teacher: [numbers[f"{name}/{teacher}"] for name in OF_GROUPS] + [numbers.get(f"gate_zeroed_share/{teacher}")]
        for teacher in ("maths", "code", "logic")
    }
    # share correct, groups all right, all wrong, mixed, share of tokens that the gate zeroed
    assert told == {"maths": [0.75, 1, 0, 1, 0.75], "code": [0.0, 0, 1, 0, 1.0], "logic": [None, 0, 0, 0, None]}
    for name in ("groups_all_right", "groups_all_wrong", "groups_mixed"):
        assert numbers[name] == sum(numbers[f"{name}/{teacher}"] or 0 for teacher in told)
    assert numbers["gate_zeroed_share_wrong/maths"] == 0.0
    assert numbers["gate_zeroed_share_right/maths"] == 1.0


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
    assert micro.inputs.stem_ids_GL.tolist() == [[1, 2, 3, 7, 8]]
    assert micro.hidden_M.tolist() == [2, 3]
    assert micro.target_M.tolist() == [7, 8]
    assert TokenIds.of([7]).dtype == np.int32
