"""One rank's part of a student, and what is done to it; where there is one rank, the whole."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from learner import report, sharding
from learner.batch import step_batch
from learner.checkpoint import MODEL, load_optimizer
from learner.errors import job_error
from learner.model import Student, load_student
from learner.objectives import objective_of
from learner.objectives.objective import Objective
from learner.optimizer import StudentOptimizer
from learner.ranks import Ranks
from learner.update import accumulate_gradients
from potstill.contracts.job import JobSpec
from potstill.contracts.trajectory import TrajectoryGroup


class Shard:
    """Holds student and optimizer from one `Load` to the next; `check` may raise between micro-batches."""

    student: Student
    optimizer: StudentOptimizer
    objective: Objective
    spec: JobSpec

    def __init__(
        self, ranks: Ranks, device: torch.device, stopwatch: report.Stopwatch, check: Callable[[], None]
    ) -> None:
        self.ranks, self.device, self.stopwatch, self.check = ranks, device, stopwatch, check


@dataclass(frozen=True)
class Load:
    """Hold the student of a job, as its spec begins it or as a checkpoint has it."""

    spec: JobSpec
    checkpoint: Path | None

    def carry_out(self, shard: Shard) -> None:
        vars(shard).pop("student", None), vars(shard).pop("optimizer", None)
        free_memory()
        try:
            self._load(shard)
        except Exception as error:  # no rank has met another yet, so it ends the job and not the ranks
            raise job_error(error) from error

    def _load(self, shard: Shard) -> None:
        training = self.spec.training
        shard.spec, shard.objective = self.spec, objective_of(self.spec)
        shard.student = load_student(
            self.spec.student,
            seed=self.spec.seed,
            device=shard.device,
            checkpoint_folder=None if self.checkpoint is None else self.checkpoint / MODEL,
            gradient_checkpointing=training.gradient_checkpointing,
            packing=training.packing,
        )
        if shard.ranks.size > 1:
            sharding.shard_layers(shard.student, shard.ranks)
        shard.optimizer = StudentOptimizer(shard.student.trainable(), training)
        if self.checkpoint is not None:
            load_optimizer(self.checkpoint, shard.optimizer)


Numbers = dict[str, float | None]


@dataclass(frozen=True)
class Step:
    """Learn from the groups of a step; gives its numbers."""

    step: int
    groups: Sequence[TrajectoryGroup]

    def carry_out(self, shard: Shard) -> Numbers:
        spec, student = shard.spec, shard.student
        batch = step_batch(self.groups, shard.objective, spec.training.micro_batch_tokens, student.layout)
        statistics = accumulate_gradients(
            student,
            batch,
            shard.objective,
            spec.sampling.temperature,
            stopwatch=shard.stopwatch,
            check=shard.check,
            ranks=shard.ranks,
        )
        with shard.stopwatch.phase("optimizer", student.device):
            update = shard.optimizer.step(self.step)
        return report.batch_numbers(batch) | statistics.numbers() | report.update_numbers(update)


@dataclass(frozen=True)
class Gather:
    """Bring the student to the leader in one piece."""

    def carry_out(self, shard: Shard) -> dict[str, Tensor]:
        return sharding.weights(shard.student, keep=shard.ranks.leads)


@dataclass(frozen=True)
class GatherOptimizer:
    """Bring the optimizer's state to the leader in one piece."""

    def carry_out(self, shard: Shard) -> dict[str, Any]:
        return shard.optimizer.state(keep=shard.ranks.leads)


def free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
