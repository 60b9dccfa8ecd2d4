"""Which problem goes where: the data order and the tickets, functions of the job alone."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from potstill.contracts.generation import PolicyRef, Sampling
from potstill.contracts.job import JobSpec
from potstill.contracts.problem import Problem
from potstill.contracts.ticket import Phase, Ticket, TicketId

SEED_BITS = 53  # exact in JSON everywhere


def derived_seed(*parts: int | str) -> int:
    """A seed for every place, the same on every machine and with every library version."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - SEED_BITS)


@lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, size: int) -> tuple[int, ...]:
    """A permutation of `range(size)`."""
    return tuple(sorted(range(size), key=lambda index: (derived_seed(seed, "order", epoch, index), index)))


def training_problem(problems: Sequence[Problem], seed: int, step: int, slot: int, prompts_per_step: int) -> Problem:
    """Every problem once an epoch; epochs follow each other without a gap."""
    epoch, offset = divmod((step - 1) * prompts_per_step + slot, len(problems))
    return problems[epoch_order(seed, epoch, len(problems))[offset]]


def sampled_policy(step: int, max_staleness: int) -> int:
    """The oldest policy version that step `step` may be sampled from."""
    return max(0, step - 1 - max_staleness)


@dataclass(frozen=True)
class TicketWriter:
    """Writes the tickets of one job; the same ones whenever it is asked."""

    job_id: str
    spec: JobSpec
    train: Sequence[Problem]
    heldout: Sequence[Problem]

    def training(self, step: int, policy: PolicyRef) -> list[Ticket]:
        """One ticket a prompt of step `step`."""
        return [self._training(step, slot, policy) for slot in range(self.spec.training.prompts_per_step)]

    def _training(self, step: int, slot: int, policy: PolicyRef) -> Ticket:
        count = self.spec.training.prompts_per_step
        problem = training_problem(self.train, self.spec.seed, step, slot, count)
        return self._ticket(
            TicketId(self.job_id, Phase.TRAIN, step, slot),
            problem,
            policy,
            n=self.spec.sampling.n,
            temperature=self.spec.sampling.temperature,
            teacher=problem.teacher or self.spec.default_teacher,
        )

    @property
    def num_heldout(self) -> int:
        """Tickets of one evaluation."""
        return len(self.heldout[: self.spec.eval.max_problems])

    def evaluation(self, step: int, policy: PolicyRef) -> list[Ticket]:
        """The same held-out problems at every step, without a teacher."""
        problems = self.heldout[: self.spec.eval.max_problems]
        return [
            self._ticket(
                TicketId(self.job_id, Phase.EVAL, step, slot),
                problem,
                policy,
                n=self.spec.eval.n,
                temperature=self.spec.eval.temperature,
                teacher=None,
            )
            for slot, problem in enumerate(problems)
        ]

    def _ticket(
        self, name: TicketId, problem: Problem, policy: PolicyRef, *, n: int, temperature: float, teacher: str | None
    ) -> Ticket:
        return Ticket(
            id=name,
            problem=problem,
            n=n,
            seed=derived_seed(self.spec.seed, name.phase, name.step, name.slot),
            policy=policy,
            sampling=Sampling(temperature, self.spec.sampling.max_tokens, tuple(self.spec.sampling.stop_token_ids)),
            teacher=teacher,
            issued_at=time.time(),
        )


def check_teachers(spec: JobSpec, problems: Sequence[Problem]) -> str | None:
    """What is wrong with the rows' teachers, as one sentence; None when nothing is."""
    for problem in problems:
        if problem.teacher is None and spec.default_teacher is None:
            return f"row {problem.id} names no teacher in column {spec.data.teacher_column!r}, and the job has several"
        if problem.teacher is not None and problem.teacher not in spec.teachers:
            return f"row {problem.id} names the teacher {problem.teacher!r}; the job has {', '.join(spec.teachers)}"
    return None
