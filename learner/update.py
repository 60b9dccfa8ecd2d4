"""Forward and backward over one step's micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from learner.batch import MicroBatch, StepBatch
from learner.dealing import deal
from learner.model import ResponseLogprobs, Student, base_logprobs, response_logprobs
from learner.objectives.candidates import Candidates
from learner.objectives.objective import Objective
from learner.objectives.terms import Term
from learner.objectives.tokens import Tokens
from learner.ranks import ALONE, Ranks
from learner.report import Stopwatch, TokenStatistics
from learner.sharding import add_up_gradients


def accumulate_gradients(
    student: Student,
    batch: StepBatch,
    objective: Objective,
    temperature: float,
    *,
    stopwatch: Stopwatch,
    check: Callable[[], None],
    ranks: Ranks = ALONE,
) -> TokenStatistics:
    """Add the gradient of the step's loss to the student's parameters; `check` may raise between micro-batches.

    Every rank has the step's batch and takes its part of it; gradient and statistics are those of all.
    """
    forward = Forward(student, objective, temperature)
    mine = deal(batch.micro_batches, ranks.rank, ranks.size)
    with stopwatch.phase("forward", student.device):
        baseline = forward.baseline(mine, ranks, check) if objective.spec.baseline == "mean" else 0.0
    statistics = TokenStatistics(objective, batch.teachers, baseline)
    for waiting in mine:
        check()
        micro = waiting.to(student.device)
        with stopwatch.phase("forward", student.device):
            values, tokens = forward(micro)
            candidates = _candidates(micro, values)
            losses = objective.losses(
                values.logprob_M, values.entropy_M, tokens, micro.counted, candidates=candidates, baseline=baseline
            )
            loss = objective.total(losses, micro.shares)
        with stopwatch.phase("backward", student.device):
            loss.backward()  # type: ignore[no-untyped-call]
        statistics.add(micro, values, tokens, losses, loss.detach())
    with stopwatch.phase("backward", student.device):
        add_up_gradients(student, ranks)
    statistics.add_up(ranks)
    return statistics


@dataclass(frozen=True)
class Forward:
    """The student's values at a micro-batch, and with them all that an objective reads of its tokens."""

    student: Student
    objective: Objective
    temperature: float

    def __call__(self, micro: MicroBatch) -> tuple[ResponseLogprobs, Tokens]:
        """One update a batch: S̄ is S of this very forward."""
        values = response_logprobs(
            self.student, micro, self.temperature, entropy_gradient=Term.ENTROPY in self.objective.terms
        )
        return values, self._tokens(micro, values.logprob_M.detach())

    def _tokens(self, micro: MicroBatch, student_M: Tensor) -> Tokens:
        threshold = self.objective.spec.threshold
        return Tokens(
            student_M=student_M,
            teacher_M=micro.teacher_M,
            behaviour_M=micro.behaviour_M,
            behaviour_known_M=micro.behaviour_known_M,
            reference_M=self._reference(micro),
            reward_scale_M=micro.reward_scale_N[micro.row_M],
            correct_M=(micro.score_N.nan_to_num(nan=-torch.inf) > threshold)[micro.row_M],
            group_advantage_M=micro.group_advantage_N[micro.row_M],
            sample_M=micro.row_M,
            num_samples=micro.num_rows,
        )

    def _reference(self, micro: MicroBatch) -> Tensor:
        """R: what came with the samples, or the base model's values."""
        if not micro.reference_is_base_N.any():
            return micro.reference_M
        base_M = base_logprobs(self.student, micro, self.temperature)
        return torch.where(micro.reference_is_base_N[micro.row_M], base_M, micro.reference_M)

    @torch.no_grad()
    def baseline(self, mine: Sequence[MicroBatch], ranks: Ranks, check: Callable[[], None]) -> float:
        """The mean advantage of the tokens that the policy gradient counts, over the whole step: one more forward."""
        total, count = 0.0, 0.0
        for waiting in mine:
            check()
            micro = waiting.to(self.student.device)
            _, tokens = self(micro)
            counted_M = micro.counted[Term.POLICY_GRADIENT]
            value_M = self.objective.advantage(tokens).value_M
            total += float(value_M.double().where(counted_M, 0.0).sum())
            count += int(counted_M.sum())
        total, count = ranks.total([total, count])
        return total / max(1.0, count)


def _candidates(micro: MicroBatch, values: ResponseLogprobs) -> Candidates:
    return Candidates(values.candidate_MK, micro.candidate_teacher_MK)
