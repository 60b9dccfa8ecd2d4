"""Forward and backward over one step's micro-batches."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from learner.batch import MicroBatch, StepBatch
from learner.model import Student, response_logprobs
from learner.objectives import Objective, TokenTerms, correct_mask
from learner.objectives.signal import TokenLogprobs
from learner.report import Stopwatch, TokenStatistics


def accumulate_gradients(
    student: Student,
    batch: StepBatch,
    objective: Objective,
    temperature: float,
    *,
    stopwatch: Stopwatch,
    check: Callable[[], None],
) -> TokenStatistics:
    """Add the gradient of the step's loss to the student's parameters; `check` may raise between micro-batches."""
    statistics = TokenStatistics(objective, batch.teachers)
    for waiting in batch.micro_batches:
        check()
        micro = waiting.to(student.device)
        with stopwatch.phase("forward", student.device):
            sampled = response_logprobs(student, micro, temperature)
            correct_M = correct_mask(objective, micro.score_N, micro.row_M)
            terms = _terms(objective, micro, sampled.logprob_M, correct_M)
            loss = objective.aggregate(terms.loss_M, micro.counted_M, batch.num_counted)
        with stopwatch.phase("backward", student.device):
            loss.backward()  # type: ignore[no-untyped-call]
        statistics.add(micro, sampled, terms, correct_M)
    return statistics


def _terms(objective: Objective, micro: MicroBatch, student_M: Tensor, correct_M: Tensor) -> TokenTerms:
    """One update a batch: S̄ is S of this very forward."""
    tokens = TokenLogprobs(student_M.detach(), micro.teacher_M, micro.behaviour_M)
    return objective.terms(student_M, tokens, correct_M, micro.counted_M, micro.row_M, micro.num_rows)
