"""One rank's part of a student, and what is done to it; where there is one rank, the whole."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
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

    def forget(self) -> None:
        """Let go of the student before another takes its memory."""
        for name in ("student", "optimizer"):
            vars(self).pop(name, None)
        free_memory()


class Load(msgspec.Struct, frozen=True, tag=True):
    """Hold the student of a job, as its spec begins it or as a checkpoint has it."""

    spec: str  # JSON
    checkpoint: str | None

    def carry_out(self, shard: Shard) -> None:
        shard.forget()
        try:
            self._load(shard)
        except Exception as error:  # no rank has met another yet, so it ends the job and not the ranks
            raise job_error(error) from error

    def _load(self, shard: Shard) -> None:
        spec, checkpoint = JobSpec.model_validate_json(self.spec), self.checkpoint and Path(self.checkpoint)
        training = spec.training
        shard.spec, shard.objective = spec, objective_of(spec)
        shard.student = load_student(
            spec.student,
            seed=spec.seed,
            device=shard.device,
            checkpoint_folder=checkpoint / MODEL if checkpoint else None,
            gradient_checkpointing=training.gradient_checkpointing,
            packing=training.packing,
        )
        if shard.ranks.size > 1:
            sharding.shard_layers(shard.student, shard.ranks)
        shard.optimizer = StudentOptimizer(shard.student.trainable(), training)
        if checkpoint:
            load_optimizer(checkpoint, shard.optimizer)

    @classmethod
    def of(cls, spec: JobSpec, checkpoint: Path | None) -> Load:
        return cls(spec.model_dump_json(by_alias=True), None if checkpoint is None else str(checkpoint))


Numbers = dict[str, float | None]


class Step(msgspec.Struct, frozen=True, tag=True):
    """Learn from the groups of a step; gives its numbers."""

    step: int
    groups: tuple[TrajectoryGroup, ...]

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


class Gather(msgspec.Struct, frozen=True, tag=True):
    """Bring the student to the leader in one piece."""

    def carry_out(self, shard: Shard) -> dict[str, Tensor]:
        return sharding.weights(shard.student, keep=shard.ranks.leads)


class GatherOptimizer(msgspec.Struct, frozen=True, tag=True):
    """Bring the optimizer's state to the leader in one piece."""

    def carry_out(self, shard: Shard) -> dict[str, Any]:
        return shard.optimizer.state(keep=shard.ranks.leads)


Orders = Load | Step | Gather | GatherOptimizer


def free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
