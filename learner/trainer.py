"""One job, from its first ticket to its final checkpoint. See docs/architecture.md, Numbering and Invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from learner import evaluation, metrics, report
from learner.channel import JobChannel
from learner.checkpoint import Checkpoints, JobFacts, write_final
from learner.control import Control
from learner.errors import JobError
from learner.inbox import Inbox
from learner.journal import Journal
from learner.ledger import StepLog, ledger_lines
from learner.objectives import objective_of
from learner.policy import Policies
from learner.ranks import Ranks
from learner.samples import write_samples
from learner.shard import Gather, GatherOptimizer, Load, Shard, Step
from learner.tickets import TicketWriter, check_teachers, sampled_policy
from learner.trackers import RunFacts, Tracker, start_trackers
from potstill.contracts.job import JobSpec
from potstill.contracts.problem import Problem
from potstill.contracts.ticket import Phase, TicketId
from potstill.contracts.trajectory import TrajectoryGroup
from potstill.data import DataError, load_problems
from potstill.service import failpoints
from potstill.service.logs import get_logger

log = get_logger("learner")


@dataclass(frozen=True)
class TrainerOptions:
    """What the process decides and the job does not."""

    device: torch.device
    reissue_seconds: float = 5.0
    samples_kept: int = 4


class Trainer:
    """Runs one job. Live steps and replayed ones take the same path; only where their groups come from differs."""

    def __init__(
        self,
        job_id: str,
        spec: JobSpec,
        folder: Path,
        channel: JobChannel,
        control: Control,
        options: TrainerOptions,
        ranks: Ranks,
    ) -> None:
        self.job_id, self.spec, self.folder, self.options = job_id, spec, folder, options
        self.channel, self.control = channel, control
        self.objective = objective_of(spec)
        self.facts = JobFacts(
            job_id, spec.student.model, spec.objective.model_dump(mode="json"), spec.student.lora is not None
        )
        self.journal = Journal(folder / "journal")
        self.ledger = StepLog(folder / "ledger.jsonl")
        self.checkpoints = Checkpoints(folder / "checkpoints", self.facts, spec.training.keep_checkpoints)
        self.policies = Policies(folder / "policies", spec.training.max_staleness)
        self.evaluations = evaluation.EvaluationFiles(folder / "eval")
        self.inbox = Inbox(
            channel, control, is_settled=self._is_settled, issue=self._issue, reissue_seconds=options.reissue_seconds
        )
        self.trackers: list[Tracker] = []
        self.stopwatch = report.Stopwatch()
        self.ranks = ranks
        # One rank may stop anywhere; several only where all of them are at the same place, between orders.
        check = control.check if ranks.size == 1 else control.beat
        self.shard = Shard(ranks, options.device, self.stopwatch, check)
        self.step = 0  # steps that are in the weights
        self.completed = 0  # steps that are published and reported as well
        self.evaluating: int | None = None  # the policy whose evaluation is under way
        self.heldout: dict[str, float | None] = {}  # what the newest evaluation found, until it is reported

    def run(self) -> dict[str, Any]:
        """Train to the last step. Returns the job's result. Raises JobError or an Interruption."""
        training = self.spec.training
        metrics.begin(self.job_id, self.spec.name, training.steps, training.max_staleness)
        self._load()
        self.channel.running(self.step)
        self._publish()
        self._start_evaluation()
        self._issue()
        for step in range(self.step + 1, self.spec.training.steps + 1):
            self._train(step)
        self._finish_evaluation()
        return self._finish()

    def _load(self) -> None:
        """The newest checkpoint, or the beginning; logs are cut back to it, and replay writes them again."""
        train, heldout = self._problems()
        resumed = self._checkpoint_to_resume()
        checkpoint = None if resumed is None else self.checkpoints.path(resumed)
        self.ranks.lead(Load.of(self.spec, checkpoint), self.shard)
        self.step = self.completed = resumed or 0
        self.ledger.truncate_after(self.step)
        self.trackers = start_trackers(
            self.spec.tracking, RunFacts(self.job_id, self.spec.name, self.folder, self.step)
        )
        self.tickets = TicketWriter(self.job_id, self.spec, train, heldout)
        log.info("job loaded", job=self.job_id, step=self.step, journaled=self.journal.steps())

    def _problems(self) -> tuple[list[Problem], list[Problem]]:
        data = self.spec.data
        try:
            train = load_problems(Path(data.train), data)
            heldout = load_problems(Path(data.heldout), data) if data.heldout else []
        except DataError as error:
            raise JobError("invalid_data", f"{error.field}: {error.message}") from error
        if complaint := check_teachers(self.spec, train):
            raise JobError("unknown_teacher", complaint)
        return train, heldout

    def _checkpoint_to_resume(self) -> int | None:
        newest = self.checkpoints.newest_intact()
        if newest is None and self.checkpoints.steps():
            raise JobError(
                "checkpoint_damaged", f"no checkpoint under {self.folder} is intact: restore one, or resubmit"
            )
        return newest

    def _train(self, step: int) -> None:
        groups = self._groups(step)
        numbers = self.ranks.lead(Step(step, tuple(groups)), self.shard)
        self.step = step
        failpoints.reached("learner.after_step", step)
        self.ledger.append(ledger_lines(step, groups))
        failpoints.reached("learner.before_ack", step)
        self.inbox.acknowledge([group.ticket for group in groups])
        self._finish_evaluation()
        self._publish()
        self._start_evaluation()
        self._issue()
        self._report(report.sample_numbers(step, groups, self.objective) | numbers)
        tokenizer = self.shard.student.tokenizer
        write_samples(self.folder / "trajectories", step, groups, tokenizer, self.options.samples_kept)
        self.completed = step
        if step % self.spec.training.checkpoint_every == 0 or step == self.spec.training.steps:
            self._checkpoint()

    def _groups(self, step: int) -> list[TrajectoryGroup]:
        """The groups of a step in slot order: from the journal if they are there, else from the workers into it."""
        if self.journal.has(step):
            metrics.steps.labels("journal").inc()
            return self.journal.read(step)
        groups = self._collect(Phase.TRAIN, step, self.spec.training.prompts_per_step)
        failpoints.reached("learner.before_step", step)
        self.control.check()
        self.journal.write(step, groups)
        failpoints.reached("learner.after_journal", step)
        metrics.steps.labels("workers").inc()
        return groups

    def _collect(self, phase: Phase, step: int, count: int) -> list[TrajectoryGroup]:
        with self.stopwatch.phase("waiting"):
            groups = self.inbox.collect([TicketId(self.job_id, phase, step, slot) for slot in range(count)])
        self._check_tombstones(phase, step, groups)
        return groups

    def _check_tombstones(self, phase: Phase, step: int, groups: Sequence[TrajectoryGroup]) -> None:
        reasons = Counter(group.tombstone for group in groups if group.tombstone is not None)
        if reasons.total() <= self.spec.training.max_tombstone_share * len(groups):
            return
        listed = "; ".join(f"{reason} ({count} times)" for reason, count in reasons.most_common(3))
        message = f"{reasons.total()} of {len(groups)} tickets of {phase} step {step} could not be fulfilled: {listed}"
        raise JobError("too_many_tombstones", message)

    def _publish(self) -> None:
        self.control.check()
        if not self.policies.catches_up(self.step):
            with self.stopwatch.phase("publish"):
                self.policies.publish(self.step, self.shard.student, self._weights())
        metrics.published_policy.set(self.step)

    def _issue(self) -> None:
        """Write every ticket that may be written now and is not yet answered for good."""
        training, published = self.spec.training, self.policies.newest()
        assert published is not None
        horizon = min(training.steps, published + 1 + training.max_staleness)
        wanted = [step for step in range(self.step + 1, horizon + 1) if not self.journal.has(step)]
        tickets = [
            ticket
            for step in wanted
            for ticket in self.tickets.training(
                step, self.policies.reference(sampled_policy(step, training.max_staleness))
            )
        ]
        if self.evaluating is not None:
            tickets = self.tickets.evaluation(self.evaluating, self.policies.reference(self.evaluating)) + tickets
        self.channel.issue(tickets)

    def _is_settled(self, ticket: TicketId) -> bool:
        """Whether the ticket's group is on disk already."""
        if ticket.phase is Phase.EVAL:
            return self.evaluations.has(ticket.step)
        return ticket.step <= self.step or self.journal.has(ticket.step)

    def _start_evaluation(self) -> None:
        due = evaluation.is_due(self.spec.eval, self.step, self.spec.training.steps)
        if due and self.tickets.heldout and not self.evaluations.has(self.step):
            self.evaluating = self.step

    def _finish_evaluation(self) -> None:
        """Wait for the evaluation under way: no newer policy is published before it has its answers."""
        if self.evaluating is None:
            return
        step = self.evaluating
        groups = self._collect(Phase.EVAL, step, self.tickets.num_heldout)
        result = evaluation.evaluate(step, groups, self.tickets.evaluated, self.spec.objective.threshold)
        self.control.check()
        self.evaluations.write(result)
        self.inbox.acknowledge([group.ticket for group in groups])
        self.channel.settle_eval(step)
        self.evaluating = None
        self.heldout = result.numbers()
        metrics.show(self.heldout)
        self.channel.say(
            f"held-out accuracy after step {step}: {result.line()}",
            step=step,
            accuracy=result.accuracy,
            interval=result.interval,
            problems=len(groups),
            samples=result.samples,
            pass_at_n=result.pass_at_n,
            maj_at_n=result.maj_at_n,
            data_sets={scores.data_source: scores.average.value for scores in result.data_sets if scores.average},
        )

    def _report(self, numbers: dict[str, float | None]) -> None:
        seconds, total = self.stopwatch.lap()
        numbers |= seconds | self.heldout
        numbers["tokens_per_second"] = (numbers["tokens"] or 0.0) / total
        self.heldout = {}
        for alert in report.alerts(self.step, numbers):
            log.warning(alert, job=self.job_id)
            self.channel.say(alert, level="warning", step=self.step)
        known = report.complete(numbers)
        metrics.step.set(self.step)
        metrics.publish(known, total)
        for tracker in self.trackers:
            tracker.log(self.step, known)
        self.channel.progress(self.step, known)

    def _checkpoint(self) -> None:
        """Save, then let queue and journal forget what no resume needs."""
        self.control.check()
        with self.stopwatch.phase("checkpoint"):
            self._save()
        self.channel.settle(self.step)
        # Segments after the oldest checkpoint stay: should the newest turn out damaged, the job goes on from there.
        self.journal.remove_through(self.checkpoints.steps()[0])

    def save_before_pause(self) -> None:
        """A checkpoint of the last complete step, unless there is one; a step half done is in the journal."""
        steps = self.checkpoints.steps()
        if self.completed == self.step > (steps[-1] if steps else 0):
            self._save()

    def _save(self) -> None:
        optimizer = self.ranks.lead(GatherOptimizer(), self.shard)
        self.checkpoints.save(self.step, self.shard.student, self._weights(), optimizer)

    def _weights(self) -> dict[str, torch.Tensor]:
        return self.ranks.lead(Gather(), self.shard)

    def close(self) -> None:
        """Let the trackers write out what they hold, however the job left this lane."""
        for tracker in self.trackers:
            tracker.close()

    def _finish(self) -> dict[str, Any]:
        self.control.check()
        final = self.folder / "final"
        write_final(final, self.shard.student, self._weights(), self.facts, self.step)
        result: dict[str, Any] = {"checkpoint": str(final.absolute())}
        if self.tickets.heldout:
            heldout = evaluation.compare(self.evaluations.read(0), self.evaluations.read(self.step))
            result["heldout"] = heldout and heldout.model_dump(mode="json")
        return result
