"""Divergences on candidates with a bucket for the rest."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from learner.model import Student
from learner.objectives import DIVERGENCES
from learner.objectives.candidates import Candidates, divergence
from potstill.contracts.objective import ObjectiveSpec
from tests.learner.groups import group, sample
from tests.learner.objectives.test_goldens import gradient, objective_of, run

VOCAB = 8


def distributions(seed: int, count: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(VOCAB, generator=generator, dtype=torch.float64).log_softmax(-1) for _ in range(count)]


def on(ids: list[int], student: Tensor, teacher: Tensor, kind: str, mix: float = 0.5) -> Tensor:
    return divergence(Candidates(student[ids][None], teacher[ids][None]), DIVERGENCES[kind], mix)[0]


@pytest.mark.parametrize("kind", DIVERGENCES)
class TestEveryDivergence:
    def test_is_zero_where_both_agree_and_positive_where_not(self, kind: str) -> None:
        student, teacher = distributions(0)
        assert on([0, 1, 2], student, student, kind).item() == pytest.approx(0, abs=1e-12)
        assert on([0, 1, 2], student, teacher, kind) > 1e-3

    def test_on_all_tokens_but_one_is_that_of_the_distributions(self, kind: str) -> None:
        student, teacher = distributions(1)
        p, q = student.exp(), teacher.exp()
        kl = lambda a, b: float((a * (a / b).log()).sum())  # noqa: E731
        mixture = 0.5 * (p + q)
        expected = {
            "reverse_kl": kl(p, q),
            "forward_kl": kl(q, p),
            "jsd": (kl(p, mixture) + kl(q, mixture)) / 2,
            "skew_forward_kl": kl(q, mixture),
            "skew_reverse_kl": kl(p, mixture),
        }
        assert on(list(range(VOCAB - 1)), student, teacher, kind).item() == pytest.approx(expected[kind], abs=1e-9)

    def test_fewer_candidates_never_tell_more(self, kind: str) -> None:
        student, teacher = distributions(2)
        found = [on(list(range(k)), student, teacher, kind).item() for k in range(1, VOCAB)]
        assert found == sorted(found)

    def test_missing_candidates_and_empty_positions_have_finite_gradients(self, kind: str) -> None:
        student = torch.tensor([[-1.0, -2.0], [-1.0, -50.0], [-0.0, -math.inf]], requires_grad=True)
        teacher = torch.tensor([[-0.5, math.nan], [-math.inf, -math.inf], [-0.0, math.nan]])
        found = divergence(Candidates(student, teacher), DIVERGENCES[kind], 0.5)
        found.sum().backward()
        assert found.isfinite().all()
        assert found[1] == 0
        assert student.grad is not None
        assert student.grad.isfinite().all()


@given(st.floats(0.0, 1.0), st.integers(0, 10**6))
def test_reverse_kl_is_not_lowered_by_shrinking_the_sets_mass(kept: float, seed: int) -> None:
    """Without a bucket, p = kept · q on the set would give kept · log(kept) < 0; with it the least is at kept = 1."""
    (teacher,) = distributions(seed, 1)
    ids = [0, 1, 2]
    student = teacher.clone()
    student[ids] += math.log(max(kept, 1e-9))
    at_shrunk = on(ids, student, teacher, "reverse_kl").item()
    assert at_shrunk >= on(ids, teacher, teacher, "reverse_kl").item() - 1e-12
    if kept < 0.9:
        assert at_shrunk > 0


def test_the_bucket_pulls_mass_into_the_set(student: Student) -> None:
    """A student with its mass elsewhere is moved to the candidates that the teacher prefers."""
    sure = sample([5], candidates=[[7, 8]], candidate_teacher=[[math.log(0.6), math.log(0.39)]])
    before = run(student, [group([sure])], objective_of(ObjectiveSpec(preset="topk-opd"))).numbers()["divergence"]
    with torch.no_grad():
        for parameter in student.trainable():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
    after = run(student, [group([sure])], objective_of(ObjectiveSpec(preset="topk-opd"))).numbers()["divergence"]
    assert before is not None
    assert after is not None
    assert 0 < after < before


def test_another_teacher_changes_the_gradient_and_a_masked_candidate_does_not(student: Student) -> None:
    def found(first: float, second: float, masked: int = 9) -> Tensor:
        one = sample([5], candidates=[[7, masked]], candidate_teacher=[[first, second]])
        return gradient(student, [group([one])], ObjectiveSpec(preset="topk-opd"))

    assert not torch.equal(found(-1.0, -2.0), found(-1.5, -2.0))
    assert torch.equal(found(-1.0, math.nan), found(-1.0, -math.inf, masked=-1))
