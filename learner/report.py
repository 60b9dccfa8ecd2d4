"""What is known of a step: one set of numbers for Prometheus, `metrics.jsonl`, the job's events and the trackers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from learner.batch import MicroBatch, StepBatch
from learner.model import ResponseLogprobs
from learner.objectives import Objective, TokenTerms
from learner.objectives.importance import mismatch_kl
from learner.optimizer import Update
from potstill.contracts.generation import FinishReason
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup
from potstill.contracts.verification import Verdict

PHASES = ("waiting", "forward", "backward", "optimizer", "publish", "checkpoint")

# Every number a report may hold. `reverse_kl/<teacher>` comes on top, one for each teacher of the job.
QUANTITIES = {
    "loss": "Loss of the step.",
    "reverse_kl": "Mean of S - T over counted tokens, nats: the estimate of KL(student || teacher) per token.",
    "teacher_logprob": "Mean teacher log-probability T of counted tokens, nats.",
    "student_logprob": "Mean student log-probability S of counted tokens, nats.",
    "behaviour_logprob": "Mean behaviour log-probability B of counted tokens, nats.",
    "entropy": "Mean entropy of the student at counted tokens, nats.",
    "advantage": "Mean advantage of counted tokens.",
    "gate_zeroed_share": "Share of counted tokens whose signal the gate set to zero.",
    "gate_zeroed_share_right": "The same among tokens of correct samples.",
    "gate_zeroed_share_wrong": "The same among tokens of samples that are not.",
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
    "counted_tokens": "Response tokens that the loss is the mean of.",
    "missing_teacher_tokens": "Response tokens without a finite teacher value.",
    "missing_behaviour_tokens": "Response tokens without a finite behaviour value.",
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


@dataclass
class TokenStatistics:
    """Sums over the counted tokens of a step, micro-batch by micro-batch."""

    objective: Objective
    teachers: tuple[str, ...]
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    largest_ratio: float = 0.0

    def add(self, micro: MicroBatch, student: ResponseLogprobs, terms: TokenTerms, correct_M: Tensor) -> None:
        """Take in one micro-batch; one transfer from the device."""
        counted_M = micro.counted_M
        student_M = student.logprob_M.detach()
        zeroed_M = counted_M & (terms.advantage_M == 0) & (terms.signal_M != 0)
        wrong_M = ~correct_M & micro.score_N.isfinite()[micro.row_M]
        columns: dict[str, Tensor] = {
            "counted": counted_M,
            "signal": terms.signal_M,
            "teacher": micro.teacher_M,
            "student": student_M,
            "behaviour": micro.behaviour_M,
            "entropy": student.entropy_M,
            "advantage": terms.advantage_M,
            "loss": terms.loss_M.detach(),
            "zeroed": zeroed_M,
            "right": correct_M,
            "wrong": wrong_M,
            "zeroed right": zeroed_M & correct_M,
            "zeroed wrong": zeroed_M & wrong_M,
            "weight": terms.weight_M,
            "capped": terms.ratio_M > self.objective.spec.importance_cap,
            "mismatch": mismatch_kl(student_M - micro.behaviour_M),
        }
        for index, name in enumerate(self.teachers):
            mine_M = (micro.teacher_N == index)[micro.row_M]
            columns |= {f"counted by {name}": mine_M, f"signal of {name}": terms.signal_M.where(mine_M, 0.0)}
        table = torch.stack([column.double().where(counted_M, 0.0) for column in columns.values()])
        for name, total in zip(columns, table.sum(dim=1).tolist(), strict=True):
            self.sums[name] += total
        if counted_M.any():
            self.largest_ratio = max(self.largest_ratio, float(terms.ratio_M.where(counted_M, 0.0).max()))

    def numbers(self) -> dict[str, float | None]:
        counted = self.sums["counted"]
        signal = self._mean("signal", counted)
        by_teacher = {name: self._mean(f"signal of {name}", self.sums[f"counted by {name}"]) for name in self.teachers}
        return {
            "loss": self._mean("loss", counted),
            "reverse_kl": None if signal is None else -signal,
            **{f"reverse_kl/{name}": None if value is None else -value for name, value in by_teacher.items()},
            "teacher_logprob": self._mean("teacher", counted),
            "student_logprob": self._mean("student", counted),
            "behaviour_logprob": self._mean("behaviour", counted),
            "entropy": self._mean("entropy", counted),
            "advantage": self._mean("advantage", counted),
            "gate_zeroed_share": self._mean("zeroed", counted),
            "gate_zeroed_share_right": self._mean("zeroed right", self.sums["right"]),
            "gate_zeroed_share_wrong": self._mean("zeroed wrong", self.sums["wrong"]),
            "importance_mean": self._mean("weight", counted),
            "importance_max": self.largest_ratio if counted else None,
            "importance_capped_share": self._mean("capped", counted),
            "mismatch_kl": self._mean("mismatch", counted),
        }

    def _mean(self, name: str, count: float) -> float | None:
        return self.sums[name] / count if count else None


def sample_numbers(step: int, groups: Sequence[TrajectoryGroup], objective: Objective) -> dict[str, float | None]:
    """What the groups say before any model looks at them."""
    samples = [trajectory for group in groups for trajectory in group.trajectories]
    judged = [[objective.is_correct(t.score) for t in g.trajectories if t.score is not None] for g in groups]
    correct = [verdict for group in judged for verdict in group]
    staleness = [step - 1 - trajectory.policy_version for trajectory in samples]
    return {
        "correct_share": _mean(correct),
        "groups_all_right": sum(all(group) for group in judged if group),
        "groups_all_wrong": sum(not any(group) for group in judged if group),
        "groups_mixed": sum(any(group) and not all(group) for group in judged),
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


def batch_numbers(batch: StepBatch) -> dict[str, float | None]:
    return {
        "tokens": batch.num_tokens,
        "counted_tokens": batch.num_counted,
        "missing_teacher_tokens": batch.num_missing_teacher,
        "missing_behaviour_tokens": batch.num_missing_behaviour,
        "unscored_samples": batch.num_unscored,
    }


def update_numbers(update: Update) -> dict[str, float | None]:
    return {
        "gradient_norm": None if update.skipped else update.gradient_norm,
        "learning_rate": update.learning_rate,
        "skipped_updates": int(update.skipped),
    }


def complete(numbers: dict[str, float | None]) -> dict[str, float]:
    """Only what is known; a number without a description is a bug."""
    assert all(name.split("/")[0] in QUANTITIES for name in numbers), sorted(numbers)
    return {name: value for name, value in numbers.items() if value is not None and np.isfinite(value)}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _verdict_share(samples: Sequence[Trajectory], verdict: Verdict) -> float | None:
    return _mean([trajectory.verdict is verdict for trajectory in samples])
