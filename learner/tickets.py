"""Which problem goes where: the data order and the tickets, functions of the job alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from potstill.contracts.generation import PolicyRef, Sampling
from potstill.contracts.job import JobSpec
from potstill.contracts.problem import Problem
from potstill.contracts.ticket import Phase, Ticket, TicketId
from potstill.seeds import derived_seed


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
            sampling=self._sampling(self.spec.sampling.temperature, self.spec.sampling.max_tokens),
            teacher=problem.teacher or self.spec.default_teacher,
        )

    @property
    def evaluated(self) -> Sequence[Problem]:
        """The problems of every evaluation, one a slot."""
        return self.heldout[: self.spec.eval.max_problems]

    @property
    def num_heldout(self) -> int:
        """Tickets of one evaluation."""
        return len(self.evaluated)

    def evaluation(self, step: int, policy: PolicyRef) -> list[Ticket]:
        """The same held-out problems at every step, without a teacher."""
        return [
            self._ticket(
                TicketId(self.job_id, Phase.EVAL, step, slot),
                problem,
                policy,
                n=self.spec.eval.n,
                sampling=self._eval_sampling(),
                teacher=None,
            )
            for slot, problem in enumerate(self.evaluated)
        ]

    def _eval_sampling(self) -> Sampling:
        spec = self.spec.eval
        return self._sampling(spec.temperature, spec.max_tokens or self.spec.sampling.max_tokens, spec.top_p)

    def _sampling(self, temperature: float, max_tokens: int, top_p: float = 1.0) -> Sampling:
        return Sampling(temperature, max_tokens, tuple(self.spec.sampling.stop_token_ids), top_p)

    def _ticket(
        self, name: TicketId, problem: Problem, policy: PolicyRef, *, n: int, sampling: Sampling, teacher: str | None
    ) -> Ticket:
        return Ticket(
            id=name,
            problem=problem,
            n=n,
            seed=derived_seed(self.spec.seed, name.phase, name.step, name.slot),
            policy=policy,
            sampling=sampling,
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
