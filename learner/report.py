"""What is known of a step: one set of numbers for Prometheus, `metrics.jsonl`, the job's events and the trackers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from learner.batch import MicroBatch, StepBatch
from learner.model import ResponseLogprobs
from learner.objectives.importance import mismatch_kl
from learner.objectives.objective import Losses, Objective
from learner.objectives.tokens import Tokens
from learner.optimizer import Update
from learner.ranks import Ranks
from potstill.contracts.generation import FinishReason
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup
from potstill.contracts.verification import Verdict

PHASES = ("waiting", "forward", "backward", "optimizer", "publish", "checkpoint")

# Every number a report may hold. Those of `BY_TEACHER` come as `<name>/<teacher>` as well.
QUANTITIES = {
    "loss": "Loss of the step.",
    "reverse_kl": "Mean of S - T over counted tokens, nats: the estimate of KL(student || teacher) per token.",
    "divergence": "Mean divergence from the teacher over candidates, nats per counted token.",
    "reference_kl": "Mean of S - R over tokens with a reference value, nats: KL(student || reference) per token.",
    "teacher_logprob": "Mean teacher log-probability T of counted tokens, nats.",
    "student_logprob": "Mean student log-probability S of counted tokens, nats.",
    "reference_logprob": "Mean reference log-probability R of tokens that have one, nats.",
    "behaviour_logprob": "Mean behaviour log-probability B of counted tokens, nats.",
    "entropy": "Mean entropy of the student at counted tokens, nats.",
    "advantage": "Mean advantage of counted tokens.",
    "baseline": "Mean advantage of the step, where it is subtracted.",
    "signal_clipped_share": "Share of counted tokens whose signal was above its bound.",
    "gate_zeroed_share": "Share of counted tokens whose signal the gate set to zero.",
    "gate_zeroed_share_right": "The same among tokens of correct samples.",
    "gate_zeroed_share_wrong": "The same among tokens of samples that are not.",
    "group_scale_mean": "Mean factor of the group scale over counted tokens.",
    "group_scale_min": "The smallest of them.",
    "correct_share": "Share of verified samples that are correct.",
    "groups_all_right": "Groups whose verified samples are all correct.",
    "groups_all_wrong": "Groups whose verified samples are all wrong.",
    "groups_mixed": "Groups with both.",
    "importance_mean": "Mean importance weight after the cap.",
    "importance_max": "Largest importance ratio before the cap.",
    "importance_capped_share": "Share of counted tokens whose ratio was above the cap.",
    "mismatch_kl": "KL(behaviour || student) per counted token, nats, estimated by r - 1 - log r.",
    "response_tokens": "Mean response length, tokens.",
    "truncated_share": "Share of samples that reached max_tokens.",
    "finish_stop_share": "Share of samples that wrote a stop token.",
    "finish_abort_share": "Share of samples that were cut off by the service.",
    "empty_responses": "Samples without a token.",
    "undetermined_share": "Share of samples whose verdict is undetermined.",
    "sandbox_error_share": "Share of samples whose verdict is sandbox_error.",
    "staleness_mean": "Mean number of updates between the sampling policy and the one that is updated.",
    "staleness_max": "The largest of them.",
    "tombstones": "Tickets of the step that could not be fulfilled.",
    "trajectories": "Samples in the step.",
    "tokens": "Prompt and response tokens in the step, without padding.",
    "counted_tokens": "Response tokens that the main term of the loss counts.",
    "missing_teacher_tokens": "Response tokens without a finite teacher value.",
    "missing_behaviour_tokens": "Response tokens without a finite behaviour value.",
    "missing_reference_tokens": "Response tokens without a finite reference value, where one is asked for.",
    "missing_candidate_values": "Candidates without a finite teacher value, and response tokens without a candidate.",
    "unscored_samples": "Samples without a score.",
    "gradient_norm": "Gradient norm before clipping.",
    "learning_rate": "Learning rate of the step.",
    "skipped_updates": "1 when the gradient was not finite and the step changed nothing.",
    "tokens_per_second": "Tokens of the step by the seconds since the step before.",
    "heldout_accuracy": "Accuracy of the evaluation that ended in this step, avg@n.",
    "heldout_pass_at_n": "Its pass@n, where a problem has several samples.",
    "heldout_maj_at_n": "Its maj@n, where a problem has several samples and the verifier takes answers.",
    "heldout_response_tokens": "Its mean response length, tokens.",
    "heldout_truncated_share": "Its share of samples that reached max_tokens.",
    "heldout_unverified_samples": "Its samples that could not be verified: no part of the accuracy.",
    **{f"seconds_{phase}": f"Seconds spent on {phase}, since the report before." for phase in PHASES},
}

OF_TOKENS_BY_TEACHER = ("reverse_kl", "gate_zeroed_share", "gate_zeroed_share_right", "gate_zeroed_share_wrong")
OF_GROUPS = ("correct_share", "groups_all_right", "groups_all_wrong", "groups_mixed")
BY_TEACHER = (*OF_TOKENS_BY_TEACHER, *OF_GROUPS)


class Stopwatch:
    """Seconds by phase since the last report."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._since = perf_counter()

    @contextmanager
    def phase(self, name: str, device: torch.device | None = None) -> Iterator[None]:
        """Time a block; with `device`, until its work there is done."""
        begun = perf_counter()
        yield
        if device is not None and device.type == "cuda":
            torch.cuda.synchronize(device)
        self._seconds[name] += perf_counter() - begun

    def lap(self) -> tuple[dict[str, float], float]:
        """Seconds by phase, and in all, since the last call."""
        seconds, self._seconds = {f"seconds_{phase}": self._seconds[phase] for phase in PHASES}, defaultdict(float)
        total, self._since = perf_counter() - self._since, perf_counter()
        return seconds, total


Column = tuple[Tensor, Tensor]  # values, and which of them to sum


@dataclass
class TokenStatistics:
    """Sums over the tokens of a step, micro-batch by micro-batch."""

    objective: Objective
    teachers: tuple[str, ...]
    baseline: float = 0.0
    sums: dict[str, float] = field(default_factory=partial(defaultdict, float))
    counts: dict[str, float] = field(default_factory=partial(defaultdict, float))
    loss: float = 0.0
    largest_ratio: float = -math.inf
    smallest_scale: float = math.inf

    def add(self, micro: MicroBatch, student: ResponseLogprobs, tokens: Tokens, losses: Losses, loss: Tensor) -> None:
        """Take in one micro-batch."""
        columns = self._columns(micro, student, tokens, losses)
        sums = torch.stack([values.double().where(mask, 0.0).sum() for values, mask in columns.values()])
        counts = torch.stack([mask.sum() for _, mask in columns.values()])
        for name, total, count in zip(columns, sums.tolist(), counts.tolist(), strict=True):
            self.sums[name] += total
            self.counts[name] += count
        self.loss += float(loss)
        counted_M = micro.counted[self.objective.terms[0]]
        if counted_M.any():
            self.largest_ratio = max(self.largest_ratio, float(losses.ratio_M[counted_M].max()))
            self.smallest_scale = min(self.smallest_scale, float(losses.advantage.scale_M[counted_M].min()))

    def add_up(self, ranks: Ranks) -> None:
        """Take in what the other ranks summed."""
        parts = ranks.gather((self.sums, self.counts, self.loss, self.largest_ratio, self.smallest_scale))
        sums, counts, losses, ratios, scales = zip(*parts, strict=True)
        self.sums |= {name: sum(part[name] for part in sums) for name in self.sums}
        self.counts |= {name: sum(part[name] for part in counts) for name in self.counts}
        self.loss, self.largest_ratio, self.smallest_scale = sum(losses), max(ratios), min(scales)

    def _columns(
        self, micro: MicroBatch, student: ResponseLogprobs, tokens: Tokens, losses: Losses
    ) -> dict[str, Column]:
        advantage, counted_M = losses.advantage, micro.counted[self.objective.terms[0]]
        zeroed_M = (advantage.gated_M == 0) & (advantage.bounded_M != 0)
        wrong_M = ~tokens.correct_M & micro.score_N.isfinite()[micro.row_M]
        compared_M = counted_M & micro.teacher_known_M
        sampled_M = counted_M & micro.behaviour_known_M
        columns: dict[str, Column] = {
            "reverse_kl": (tokens.student_M - micro.teacher_M, compared_M),
            "teacher_logprob": (micro.teacher_M, compared_M),
            "student_logprob": (tokens.student_M, counted_M),
            "behaviour_logprob": (micro.behaviour_M, sampled_M),
            "reference_logprob": (tokens.reference_M, micro.reference_known_M),
            "reference_kl": (tokens.student_M - tokens.reference_M, micro.reference_known_M),
            "entropy": (student.entropy_M.detach(), counted_M),
            "advantage": (advantage.value_M - self.baseline, counted_M),
            "signal_clipped_share": (advantage.bounded_M != advantage.signal_M, counted_M),
            "gate_zeroed_share": (zeroed_M, counted_M),
            "gate_zeroed_share_right": (zeroed_M, counted_M & tokens.correct_M),
            "gate_zeroed_share_wrong": (zeroed_M, counted_M & wrong_M),
            "group_scale_mean": (advantage.scale_M, counted_M),
            "importance_mean": (losses.weight_M, sampled_M),
            "importance_capped_share": (losses.ratio_M > self.objective.spec.importance_cap, sampled_M),
            "mismatch_kl": (mismatch_kl(tokens.student_M - micro.behaviour_M), sampled_M),
        }
        if losses.divergence_M is not None:
            columns["divergence"] = (losses.divergence_M.detach(), counted_M)
        for index, name in enumerate(self.teachers):
            mine_M = (micro.teacher_N == index)[micro.row_M]
            for quantity in OF_TOKENS_BY_TEACHER:
                values_M, counted_M = columns[quantity]
                columns[f"{quantity}/{name}"] = (values_M, counted_M & mine_M)
        return columns

    def numbers(self) -> dict[str, float | None]:
        means = {name: self._mean(name) for name in self.sums}
        return means | {
            "loss": self.loss if self.counts["student_logprob"] else None,
            "importance_max": self.largest_ratio if self.counts["importance_mean"] else None,
            "group_scale_min": self.smallest_scale if self.counts["group_scale_mean"] else None,
            "baseline": self.baseline if self.objective.spec.baseline == "mean" else None,
        }

    def _mean(self, name: str) -> float | None:
        return self.sums[name] / self.counts[name] if self.counts[name] else None


def sample_numbers(step: int, groups: Sequence[TrajectoryGroup], objective: Objective) -> dict[str, float | None]:
    """What the groups say before any model looks at them."""
    samples = [trajectory for group in groups for trajectory in group.trajectories]
    staleness = [step - 1 - trajectory.policy_version for trajectory in samples]
    return {
        **_group_numbers(groups, objective),
        **_group_numbers_by_teacher(groups, objective),
        "response_tokens": _mean([len(trajectory.token_ids) for trajectory in samples]),
        "truncated_share": _mean([t.finish_reason is FinishReason.LENGTH for t in samples]),
        "finish_stop_share": _mean([t.finish_reason is FinishReason.STOP for t in samples]),
        "finish_abort_share": _mean([t.finish_reason is FinishReason.ABORT for t in samples]),
        "empty_responses": sum(len(trajectory.token_ids) == 0 for trajectory in samples),
        "undetermined_share": _verdict_share(samples, Verdict.UNDETERMINED),
        "sandbox_error_share": _verdict_share(samples, Verdict.SANDBOX_ERROR),
        "staleness_mean": _mean(staleness),
        "staleness_max": max(staleness, default=None),
        "tombstones": sum(group.tombstone is not None for group in groups),
        "trajectories": len(samples),
    }


def _group_numbers(groups: Sequence[TrajectoryGroup], objective: Objective) -> dict[str, float | None]:
    judged = [[objective.is_correct(t.score) for t in g.trajectories if t.score is not None] for g in groups]
    return {
        "correct_share": _mean([verdict for group in judged for verdict in group]),
        "groups_all_right": sum(all(group) for group in judged if group),
        "groups_all_wrong": sum(not any(group) for group in judged if group),
        "groups_mixed": sum(any(group) and not all(group) for group in judged),
    }


def _group_numbers_by_teacher(groups: Sequence[TrajectoryGroup], objective: Objective) -> dict[str, float | None]:
    """`<name>/<teacher>` of every teacher that has a group in the step."""
    found: dict[str, float | None] = {}
    for teacher in sorted({group.teacher for group in groups if group.teacher is not None}):
        own = _group_numbers([group for group in groups if group.teacher == teacher], objective)
        found |= {f"{name}/{teacher}": value for name, value in own.items()}
    return found


def batch_numbers(batch: StepBatch) -> dict[str, float | None]:
    missing = batch.missing
    return {
        "tokens": batch.num_tokens,
        "counted_tokens": batch.num_counted,
        "missing_teacher_tokens": missing.teacher,
        "missing_behaviour_tokens": missing.behaviour,
        "missing_reference_tokens": missing.reference,
        "missing_candidate_values": missing.candidates,
        "unscored_samples": missing.scores,
    }


def update_numbers(update: Update) -> dict[str, float | None]:
    return {
        "gradient_norm": None if update.skipped else update.gradient_norm,
        "learning_rate": update.learning_rate,
        "skipped_updates": int(update.skipped),
    }


def alerts(step: int, numbers: Mapping[str, float | None]) -> list[str]:
    """What a person should hear of a step, beside its numbers."""
    found = []
    if numbers["truncated_share"] == 1.0:
        found.append(f"every sample of step {step} was cut at the length limit: raise sampling.max_tokens")
    if numbers["trajectories"] and not numbers["counted_tokens"]:
        found.append(f"no token of step {step} could be learned from: see the missing values of its numbers")
    if numbers["skipped_updates"]:
        found.append(f"the gradient of step {step} was not finite, and the weights were left as they were")
    return found


def complete(numbers: dict[str, float | None]) -> dict[str, float]:
    """Only what is known; a number without a description is a bug."""
    assert all(name.split("/")[0] in QUANTITIES for name in numbers), sorted(numbers)
    return {name: value for name, value in numbers.items() if value is not None and np.isfinite(value)}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _verdict_share(samples: Sequence[Trajectory], verdict: Verdict) -> float | None:
    return _mean([trajectory.verdict is verdict for trajectory in samples])
