"""The objectives as one would write them on a blackboard: float64, every sample by itself, the whole vocabulary.

Shares no code with `learner`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from potstill.contracts.objective import ResolvedObjective
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup

Logits = Callable[[list[int]], Tensor]  # token ids of one row to logits [L, V], float64


@dataclass
class Sequences:
    """One term of the loss: for each sample, the losses of its counted tokens."""

    samples: list[list[Tensor]] = field(default_factory=list)

    def aggregate(self, rule: str, length: int) -> Tensor:
        samples = [torch.stack(tokens) for tokens in self.samples if tokens]
        if not samples:
            return torch.zeros((), dtype=torch.float64)
        match rule:
            case "token_mean":
                return torch.cat(samples).mean()
            case "sequence_mean_token_mean":
                return torch.stack([tokens.mean() for tokens in samples]).mean()
            case "sequence_mean_token_sum":
                return torch.stack([tokens.sum() / length for tokens in samples]).mean()
        raise AssertionError(rule)


def loss(
    groups: Sequence[TrajectoryGroup],
    logits_of: Logits,
    spec: ResolvedObjective,
    *,
    temperature: float,
    reward_scales: Mapping[str, float] | None = None,
    max_tokens: int = 1,
) -> Tensor:
    """Loss of a step, with the gradient of its first update."""
    step = Step(logits_of, spec, temperature, reward_scales or {})
    for group in groups:
        step.group(group)
    return step.loss(max_tokens)


class Step:
    def __init__(
        self, logits_of: Logits, spec: ResolvedObjective, temperature: float, reward_scales: Mapping[str, float]
    ) -> None:
        self.logits_of, self.spec, self.temperature, self.reward_scales = logits_of, spec, temperature, reward_scales
        self.policy: list[list[tuple[Tensor, float, float]]] = []  # S, advantage, weight
        self.divergence, self.reference_kl, self.entropy = Sequences(), Sequences(), Sequences()

    def loss(self, max_tokens: int) -> Tensor:
        spec = self.spec
        advantages = [advantage for sample in self.policy for _, advantage, _ in sample]
        baseline = sum(advantages) / len(advantages) if spec.baseline == "mean" and advantages else 0.0
        policy = Sequences([[-w * (a - baseline) * s for s, a, w in sample] for sample in self.policy])
        rule = spec.aggregation
        total = self.logits_of([0]).sum() * 0.0
        if spec.loss == "policy_gradient" or spec.outcome_weight > 0:
            total = total + policy.aggregate(rule, max_tokens)
        if spec.loss == "divergence":
            total = total + self.divergence.aggregate(rule, max_tokens)
        if spec.reference_kl != "off":
            total = total + spec.reference_kl_weight * self.reference_kl.aggregate(rule, max_tokens)
        return total - spec.entropy_weight * self.entropy.aggregate(rule, max_tokens)

    def group(self, group: TrajectoryGroup) -> None:
        scores = [t.score for t in group.trajectories if t.score is not None]
        for trajectory in group.trajectories:
            relative = None if trajectory.score is None else group_advantage(trajectory.score, scores, self.spec)
            scale = self.reward_scales.get(group.teacher or "", 1.0)
            self.sample(group.prompt_token_ids.tolist(), trajectory, relative, scale)

    def sample(self, prompt: list[int], trajectory: Trajectory, relative: float | None, scale: float) -> None:
        response = trajectory.token_ids.tolist()
        rows = self.logits_of(prompt + response)[len(prompt) - 1 : len(prompt) - 1 + len(response)]
        table = torch.log_softmax(rows / self.temperature, dim=-1)
        masked = relative is None and (self.spec.needs_group or self.spec.gate != "off")
        policy: list[tuple[int, float]] = []  # token, advantage
        for index, token in enumerate(response):
            if masked or not math.isfinite(behaviour(trajectory, index)):
                continue
            advantage = self.advantage(trajectory, index, table[index, token].item(), relative, scale)
            if advantage is not None:
                policy.append((index, advantage))
        weights = self.weights(trajectory, table, [index for index, _ in policy])
        self.policy.append([(table[i, response[i]], a, w) for (i, a), w in zip(policy, weights, strict=True)])
        self.entropy.samples.append([-(row.exp() * row).sum() for row in table])
        self.near_reference(trajectory, table)
        self.divergence.samples.append([] if masked else self.divergences(trajectory, table, relative))

    def advantage(
        self, trajectory: Trajectory, index: int, student: float, relative: float | None, scale: float
    ) -> float | None:
        """The advantage of one token; None when it does not count."""
        spec, outcome = self.spec, self.spec.outcome_weight * (relative or 0.0)
        if spec.loss == "divergence":
            return outcome
        teacher = value(trajectory.teacher_logprobs, index)
        if not math.isfinite(teacher):
            return None
        d = teacher - student
        if spec.signal == "gopd" and scale != 1.0:
            reference = value(trajectory.reference_logprobs, index)
            if not math.isfinite(reference):
                return None
            d = scale * (teacher - reference) - (student - reference)
        if spec.clip_signal is not None:
            d = min(max(d, -spec.clip_signal), spec.clip_signal)
        right = trajectory.score is not None and trajectory.score > spec.threshold
        match spec.gate:
            case "correctness":
                d = max(d, 0.0) if right else min(d, 0.0)
            case "inverse":
                d = min(d, 0.0) if right else max(d, 0.0)
            case "relative":
                sign = math.copysign(1.0, relative) if relative else 0.0
                d = sign * max(sign * d, 0.0)
        if spec.group_scale == "magnitude":
            assert relative is not None
            d *= abs(relative) + spec.group_scale_offset
        return d + outcome

    def weights(self, trajectory: Trajectory, table: Tensor, counted: list[int]) -> list[float]:
        response = trajectory.token_ids.tolist()
        logs = [table[i, response[i]].item() - behaviour(trajectory, i) for i in counted]
        if self.spec.importance == "off":
            return [1.0] * len(logs)
        ratios = (
            [math.exp(log) for log in logs] if self.spec.importance == "token" else [math.exp(sum(logs))] * len(logs)
        )
        return [min(ratio, self.spec.importance_cap) for ratio in ratios]

    def near_reference(self, trajectory: Trajectory, table: Tensor) -> None:
        counted = [
            index
            for index in range(len(trajectory.token_ids))
            if math.isfinite(value(trajectory.reference_logprobs, index))
            and math.isfinite(behaviour(trajectory, index))
        ]
        terms = []
        for index, weight in zip(counted, self.weights(trajectory, table, counted), strict=True):
            student, reference = table[index, trajectory.token_ids[index]], value(trajectory.reference_logprobs, index)
            match self.spec.reference_kl:
                case "k1":
                    terms.append(weight * (student.item() - reference) * student)
                case "k2":
                    terms.append(weight * (student - reference) ** 2 / 2)
                case "k3":
                    terms.append(weight * ((reference - student).exp() - 1 - (reference - student)))
        self.reference_kl.samples.append(terms)

    def divergences(self, trajectory: Trajectory, table: Tensor, relative: float | None) -> list[Tensor]:
        ids, values = trajectory.candidate_ids, trajectory.candidate_teacher_logprobs
        if ids is None or values is None:
            return []
        factor = 1.0
        if self.spec.group_scale == "magnitude":
            assert relative is not None
            factor = abs(relative) + self.spec.group_scale_offset
        terms = []
        for row, named, teacher in zip(table, ids.tolist(), values.tolist(), strict=True):
            pairs = [(i, q) for i, q in zip(named, teacher, strict=True) if i >= 0 and math.isfinite(q)]
            if pairs:
                p = row[[i for i, _ in pairs]].exp()
                q = torch.tensor([q for _, q in pairs], dtype=torch.float64).exp()
                p, q = (torch.cat([side, 1 - side.sum(0, keepdim=True)]) for side in (p, q))
                terms.append(factor * divergence(p, q, self.spec))
        return terms


def group_advantage(score: float, scores: list[float], spec: ResolvedObjective) -> float:
    if len(scores) == 1:
        return score
    mean = sum(scores) / len(scores)
    if spec.normalization == "mean":
        return score - mean
    std = math.sqrt(sum((s - mean) ** 2 for s in scores) / (len(scores) - 1))
    return (score - mean) / (std + 1e-6)


def divergence(p: Tensor, q: Tensor, spec: ResolvedObjective) -> Tensor:
    """Of two plain distributions: p the student's, q the teacher's."""
    match spec.divergence:
        case "reverse_kl":
            return kl(p, q)
        case "forward_kl":
            return kl(q, p)
        case "jsd":
            mixture = spec.beta * q + (1 - spec.beta) * p
            return spec.beta * kl(q, mixture) + (1 - spec.beta) * kl(p, mixture)
        case "skew_forward_kl":
            return kl(q, spec.skew * q + (1 - spec.skew) * p)
        case "skew_reverse_kl":
            return kl(p, spec.skew * p + (1 - spec.skew) * q)


def kl(first: Tensor, second: Tensor) -> Tensor:
    return (first * (first / second).log()).sum()


def behaviour(trajectory: Trajectory, index: int) -> float:
    return float(trajectory.behaviour_logprobs[index])


def value(logprobs: object, index: int) -> float:
    return math.nan if logprobs is None else float(logprobs[index])  # type: ignore[index]
