"""A ticket: the order for one group of samples. The learner writes it, a rollout worker fulfils it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from potstill.contracts.generation import PolicyRef, Sampling
from potstill.contracts.problem import Problem


class Phase(StrEnum):
    TRAIN = "train"
    EVAL = "eval"


class TicketId(msgspec.Struct, frozen=True, order=True):
    """Names one ticket for ever: whatever is delivered twice has the same id."""

    job: str
    phase: Phase
    step: int  # train: the optimizer step it feeds (1 is the first); eval: the steps taken before it
    slot: int  # position inside the step

    def __str__(self) -> str:
        return f"{self.job}/{self.phase}/{self.step:06d}/{self.slot:05d}"


class Ticket(msgspec.Struct, frozen=True):
    id: TicketId
    problem: Problem
    n: int
    seed: int
    policy: PolicyRef | None  # None: whatever weights the student has
    sampling: Sampling
    teacher: str | None  # a name in the job's registry; None asks for no teacher (eval)
    issued_at: float  # Unix seconds
