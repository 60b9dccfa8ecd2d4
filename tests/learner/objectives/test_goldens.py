"""The learner's gradient against a dense float64 implementation, on a real tiny model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import torch

from learner.batch import step_batch
from learner.model import Student
from learner.objectives import Objective, Route, resolve
from learner.report import Stopwatch, TokenStatistics
from learner.update import accumulate_gradients
from potstill.contracts.objective import ObjectiveSpec
from potstill.contracts.objective import resolve as resolve_spec
from potstill.contracts.trajectory import TrajectoryGroup
from tests.learner import dense
from tests.learner.groups import random_groups

CAP = 3.0
TEMPERATURE = 0.7
MAX_TOKENS = 12
SCALES = {"maths": 1.25, "code": 0.5}

# What is not said is the preset's: token_mean, weight by token.
OBJECTIVES: dict[str, dict[str, Any]] = {
    "opd": {},
    "opd without weights": {"importance": "off"},
    "opd, weight by sequence": {"importance": "sequence"},
    "opdvr": {"preset": "opdvr"},
    "opdvr without weights": {"preset": "opdvr", "importance": "off"},
    "opdvr, weight by sequence": {"preset": "opdvr", "importance": "sequence"},
    "exopd": {"preset": "exopd"},
    "gopd, correctness": {"signal": "gopd", "gate": "correctness"},
    "gopd, relative, magnitude, outcome": {
        "signal": "gopd",
        "gate": "relative",
        "group_scale": "magnitude",
        "group_scale_offset": 0.3,
        "outcome_weight": 0.5,
    },
    "inverse": {"gate": "inverse"},
    "relative": {"gate": "relative"},
    "grpd": {"preset": "grpd"},
    "grpd, offset": {"preset": "grpd", "group_scale_offset": 0.2, "normalization": "mean"},
    "magnitude without gate": {"group_scale": "magnitude", "group_scale_offset": 0.1},
    "inverse, magnitude": {"gate": "inverse", "group_scale": "magnitude"},
    "outcome": {"preset": "opd+grpo"},
    "outcome, mean": {"preset": "opd+grpo", "normalization": "mean", "outcome_weight": 0.3},
    "correctness, outcome": {"gate": "correctness", "outcome_weight": 0.7},
    "clipped signal": {"clip_signal": 0.8, "signal": "gopd"},
    "baseline": {"baseline": "mean"},
    "grpd, baseline, clipped": {"preset": "grpd", "baseline": "mean", "clip_signal": 1.5},
    "mean of means": {"preset": "exopd", "aggregation": "sequence_mean_token_mean"},
    "mean of sums": {"preset": "opdvr", "aggregation": "sequence_mean_token_sum"},
    "k1": {"reference_kl": "k1", "reference_kl_weight": 0.4},
    "k2": {"reference_kl": "k2", "reference_kl_weight": 0.4},
    "k3": {"reference_kl": "k3", "reference_kl_weight": 0.4, "aggregation": "sequence_mean_token_mean"},
    "k2, weight by sequence": {"reference_kl": "k2", "reference_kl_weight": 0.4, "importance": "sequence"},
    "entropy": {"entropy_weight": 0.3},
    "entropy, mean of sums": {"entropy_weight": 0.3, "gate": "relative", "aggregation": "sequence_mean_token_sum"},
    "reverse_kl": {"preset": "topk-opd"},
    "forward_kl": {"preset": "topk-opd", "divergence": "forward_kl"},
    "jsd": {"preset": "topk-opd", "divergence": "jsd"},
    "jsd 0.1": {"preset": "topk-opd", "divergence": "jsd", "beta": 0.1},
    "skew_forward_kl": {"preset": "topk-opd", "divergence": "skew_forward_kl"},
    "skew_reverse_kl": {"preset": "topk-opd", "divergence": "skew_reverse_kl", "skew": 0.3},
    "divergence, mean of means": {"preset": "topk-opd", "aggregation": "sequence_mean_token_mean"},
    "divergence, magnitude": {"preset": "topk-opd", "group_scale": "magnitude", "group_scale_offset": 0.2},
    "divergence, outcome, k3, entropy": {
        "preset": "topk-opd",
        "divergence": "jsd",
        "outcome_weight": 0.5,
        "baseline": "mean",
        "reference_kl": "k3",
        "reference_kl_weight": 0.2,
        "entropy_weight": 0.1,
    },
}


def objective_of(spec: ObjectiveSpec, scales: Mapping[str, float] = SCALES) -> Objective:
    """With each teacher's λ."""
    return resolve(spec, routes={name: Route(scale) for name, scale in scales.items()}, max_tokens=MAX_TOKENS)


def run(student: Student, groups: list[TrajectoryGroup], objective: Objective, *, tokens: int = 64) -> TokenStatistics:
    """Leaves the step's gradient in the student; `tokens` is the budget of a micro-batch."""
    batch = step_batch(groups, objective, tokens)
    student.model.zero_grad()
    return accumulate_gradients(student, batch, objective, TEMPERATURE, stopwatch=Stopwatch(), check=lambda: None)


def gradient(
    student: Student,
    groups: list[TrajectoryGroup],
    spec: ObjectiveSpec,
    *,
    tokens: int = 64,
    scales: Mapping[str, float] = SCALES,
) -> torch.Tensor:
    """The step's gradient as one vector."""
    run(student, groups, objective_of(spec, scales), tokens=tokens)
    return flat(student)


def flat(student: Student) -> torch.Tensor:
    return torch.cat([p.grad.reshape(-1).double() for p in student.trainable() if p.grad is not None])


def dense_gradient(student: Student, groups: list[TrajectoryGroup], spec: ObjectiveSpec) -> torch.Tensor:
    model = student.model.double()
    model.zero_grad()
    logits_of: dense.Logits = lambda ids: model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]  # noqa: E731
    resolved = resolve_spec(spec)
    dense.loss(
        groups, logits_of, resolved, temperature=TEMPERATURE, reward_scales=SCALES, max_tokens=MAX_TOKENS
    ).backward()
    expected = flat(student)
    model.float()
    return expected


@pytest.mark.parametrize("parts", OBJECTIVES.values(), ids=OBJECTIVES.keys())
def test_gradient_equals_the_dense_one(student: Student, parts: dict[str, Any]) -> None:
    groups = random_groups(3)
    spec = ObjectiveSpec(importance_cap=CAP, **parts)
    expected = dense_gradient(student, groups, spec)
    assert expected.norm() > 0.02
    torch.testing.assert_close(gradient(student, groups, spec), expected, rtol=2e-3, atol=2e-5 * expected.norm().item())


def test_every_objective_is_another_one(student: Student) -> None:
    """A part that was ignored would give the gradient of the objective without it."""
    groups = random_groups(3)
    specs = [ObjectiveSpec(importance_cap=CAP, **parts) for name, parts in OBJECTIVES.items() if name != "k2"]  # k1's
    found = [gradient(student, groups, spec) for spec in specs]
    for index, one in enumerate(found):
        for other in found[:index]:
            assert not torch.allclose(one, other, rtol=1e-3, atol=1e-5 * one.abs().max().item())


def test_gate_can_be_chosen_over_the_preset(student: Student) -> None:
    groups = random_groups(4)
    overridden = gradient(student, groups, ObjectiveSpec(preset="opd", gate="correctness"))
    assert torch.equal(overridden, gradient(student, groups, ObjectiveSpec(preset="opdvr")))
    assert not torch.equal(overridden, gradient(student, groups, ObjectiveSpec(preset="opd")))


@pytest.mark.parametrize("gate", ["off", "correctness", "relative"])
def test_at_lambda_one_gopd_is_opd_bit_for_bit_whatever_the_reference(student: Student, gate: Any) -> None:
    groups = random_groups(5)
    unknown = [
        msgspec.structs.replace(
            group,
            trajectories=tuple(msgspec.structs.replace(t, reference_logprobs=None) for t in group.trajectories),
        )
        for group in groups
    ]
    opd = gradient(student, groups, ObjectiveSpec(gate=gate), scales={"maths": 1.0, "code": 1.0})
    gopd = ObjectiveSpec(signal="gopd", gate=gate)
    for with_reference in (groups, unknown):
        assert torch.equal(gradient(student, with_reference, gopd, scales={"maths": 1.0, "code": 1.0}), opd)
    assert not torch.equal(gradient(student, groups, gopd), opd)
