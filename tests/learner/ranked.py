"""What ranks do to a student, for a test to compare: `torchrun -m tests.learner.ranked <folder>`."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from learner import sharding
from learner.batch import step_batch
from learner.checkpoint import Checkpoints, JobFacts, write_final
from learner.errors import JobError
from learner.ranks import Ranks
from learner.report import Stopwatch
from learner.shard import Gather, GatherOptimizer, Load, Orders, Shard, Step
from learner.update import accumulate_gradients
from potstill.contracts.job import JobSpec
from potstill.contracts.trajectory import TrajectoryGroup
from tests.learner.groups import group, random_groups

LORA = {"rank": 4, "alpha": 8}


@dataclass(frozen=True)
class Case:
    """A job, and how many groups a step of it has."""

    student: str = "tied"
    lora: dict[str, Any] | None = None
    objective: dict[str, Any] = field(default_factory=lambda: {"preset": "opd"})
    reference: str | None = None
    training: dict[str, Any] = field(default_factory=dict)
    count: int = 5

    def spec(self, folder: Path) -> JobSpec:
        teacher = {"model": "teacher", "reference": self.reference, "temperature": 0.7}
        return JobSpec.model_validate(
            {
                "name": "ranked",
                "student": {"model": str(folder / self.student), "lora": self.lora},
                "teachers": {"maths": teacher, "code": teacher},
                "data": {"train": "none.jsonl"},
                "objective": self.objective,
                "sampling": {"n": 3, "max_tokens": 9, "temperature": 0.7},
                "training": {"steps": 9, "lr": 1e-3, "micro_batch_tokens": 48, **self.training},
            }
        )

    def groups(self, step: int) -> tuple[TrajectoryGroup, ...]:
        return tuple(random_groups(100 + step, count=self.count)) or (group([], tombstone="refused"),)


CASES = {
    "tied": Case(),
    "untied": Case("untied", objective={"preset": "opd", "entropy_weight": 0.1}),
    "adapter": Case(lora=LORA),
    "base as reference": Case(lora=LORA, objective={"preset": "exopd"}, reference="base"),
    "checkpointing": Case(training={"gradient_checkpointing": True}),
    "packed": Case(training={"packing": True}),
    "packed, checkpointing": Case("untied", training={"packing": True, "gradient_checkpointing": True}),
    "divergence": Case(objective={"preset": "topk-opd"}),
    "baseline": Case(objective={"preset": "opdvr", "baseline": "mean"}),
    "an odd number of micro-batches": Case(count=3, training={"micro_batch_tokens": 40}),
    "one micro-batch": Case(count=2, training={"micro_batch_tokens": 4096}),
    "nothing to learn from": Case(count=0),
}


class Gradients(msgspec.Struct, frozen=True, tag=True):
    """The gradient of a step, in one piece; it is forgotten again."""

    groups: tuple[TrajectoryGroup, ...]

    def carry_out(self, shard: Shard) -> dict[str, Tensor]:
        spec, student = shard.spec, shard.student
        batch = step_batch(self.groups, shard.objective, spec.training.micro_batch_tokens, student.layout)
        accumulate_gradients(
            student,
            batch,
            shard.objective,
            spec.sampling.temperature,
            stopwatch=shard.stopwatch,
            check=shard.check,
            ranks=shard.ranks,
        )
        named = [(name, p.grad) for name, p in student.model.named_parameters() if p.grad is not None]
        whole = {name: sharding.gathered(gradient, keep=True) for name, gradient in named}
        shard.optimizer.clear()
        return {name: gradient.clone() for name, gradient in whole.items() if gradient is not None}


class Held(msgspec.Struct, frozen=True, tag=True):
    """How many elements of the trained parameters this rank holds."""

    def carry_out(self, shard: Shard) -> int:
        return sum(getattr(p, "_local_tensor", p).numel() for p in shard.student.trainable())


class FailOnOne(msgspec.Struct, frozen=True, tag=True):
    """Rank 1 has no memory left while the others wait for it."""

    def carry_out(self, shard: Shard) -> None:
        if shard.ranks.rank == 1:
            raise torch.OutOfMemoryError("no memory")
        shard.ranks.add_up([torch.zeros(2)])


class Complain(msgspec.Struct, frozen=True, tag=True):
    """One rank finds something wrong before any meets another."""

    rank: int

    def carry_out(self, shard: Shard) -> None:
        if shard.ranks.rank == self.rank:
            raise JobError("student_load_failed", "there is no such folder")


def outcome(ranks: Ranks, case: Case, folder: Path, others: Path | None) -> dict[str, Any]:
    """Two steps with a checkpoint between, and the second step taken again from the checkpoint of another run."""
    spec = case.spec(folder)
    shard = Shard(ranks, torch.device("cpu"), Stopwatch(), lambda: None)
    ranks.lead(Load.of(spec, None), shard)
    found: dict[str, Any] = {"gradients": ranks.lead(Gradients(case.groups(1)), shard)}
    found["held"] = ranks.lead(Held(), shard)
    found["numbers"] = [ranks.lead(Step(1, case.groups(1)), shard)]
    facts = JobFacts("job", "tiny", {}, adapter=case.lora is not None)
    checkpoints = Checkpoints(folder / f"of-{ranks.size}" / case_folder(case), facts, keep=1)
    weights = ranks.lead(Gather(), shard)
    checkpoints.save(1, shard.student, weights, ranks.lead(GatherOptimizer(), shard))
    write_final(folder / f"final-{ranks.size}" / case_folder(case), shard.student, weights, facts, 1)
    found["numbers"].append(ranks.lead(Step(2, case.groups(2)), shard))
    found["weights"] = _copied(ranks.lead(Gather(), shard))
    if others is not None:
        ranks.lead(Load.of(spec, others / case_folder(case) / "step-000001"), shard)
        ranks.lead(Step(2, case.groups(2)), shard)
        found["resumed"] = _copied(ranks.lead(Gather(), shard))
    return found


def case_folder(case: Case) -> str:
    return next(name for name, each in CASES.items() if each is case).replace(" ", "-").replace(",", "")


def _copied(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


def main() -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as in a learner: it is left at the next check, not at once
    ranks, folder = Ranks.join("cpu"), Path(sys.argv[1])
    shard = Shard(ranks, torch.device("cpu"), Stopwatch(), lambda: None)
    if not ranks.leads:
        while ranks.follow(shard, Orders | Gradients | Held | FailOnOne | Complain):
            pass
        return
    found: dict[str, Any] = {name: outcome(ranks, case, folder, folder / "of-1") for name, case in CASES.items()}
    complaints = []
    for order in (Complain(0), Complain(1), FailOnOne()):
        try:
            ranks.lead(order, shard)
        except JobError as error:
            complaints.append((error.code, error.detail, ranks.broken))
    torch.save({"found": found, "complaints": complaints}, folder / "ranked.pt")
    ranks.dismiss()


if __name__ == "__main__":
    main()
