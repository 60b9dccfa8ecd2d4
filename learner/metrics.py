"""Metrics of a learner. The quantities of a step are gauges of the newest step."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from prometheus_client import Counter, Gauge, Histogram

from learner.report import BY_TEACHER, PHASES, QUANTITIES
from potstill.contracts.ticket import Phase
from potstill.service.metrics import start_at_zero

STEP_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120)

_quantities = {name: Gauge(f"potstill_learner_step_{name}", description) for name, description in QUANTITIES.items()}
_by_teacher = {
    name: Gauge(f"potstill_learner_teacher_{name}", f"By teacher: {QUANTITIES[name]}", ["teacher"])
    for name in BY_TEACHER
}
job_info = Gauge("potstill_learner_job_info", "Always 1; the job of this lane, or its last one.", ["job_id", "name"])
working = Gauge("potstill_learner_working", "1 while this lane has a job.")
step = Gauge("potstill_learner_step", "Optimizer steps taken by the job this lane works on.")
planned_steps = Gauge("potstill_learner_planned_steps", "Optimizer steps that job is to take.")
staleness_bound = Gauge("potstill_learner_staleness_bound", "The job's `max_staleness`.")
step_duration = Histogram(
    "potstill_learner_step_duration_seconds", "From one step's report to the next.", buckets=STEP_BUCKETS
)
last_step = Gauge(
    "potstill_learner_last_step_timestamp_seconds", "When the newest step was reported or the job begun, Unix time."
)
phase_seconds = Counter("potstill_learner_phase_seconds_total", "Where the time of steps went.", ["phase"])
published_policy = Gauge("potstill_learner_published_policy", "Newest policy version published.")
missing_groups = Gauge("potstill_learner_missing_groups", "Groups that the learner is waiting for.")
heartbeat_seconds = Gauge("potstill_learner_heartbeat_timestamp_seconds", "When the loop last went round, Unix time.")
steps = Counter("potstill_learner_steps_total", "Optimizer steps, replayed ones included.", ["source"])
tokens = Counter("potstill_learner_tokens_total", "Tokens trained on, without padding.")
tombstones = Counter("potstill_learner_tombstones_total", "Tombstones received.", ["phase"])
missing_values = Counter("potstill_learner_missing_values_total", "Values that could not be had, by kind.", ["kind"])
skipped_updates = Counter("potstill_learner_skipped_updates_total", "Updates skipped for a gradient not finite.")
duplicate_groups = Counter("potstill_learner_duplicate_groups_total", "Groups dropped: delivered or applied before.")
jobs = Counter("potstill_learner_jobs_total", "Times a job left this lane, by how.", ["outcome"])

start_at_zero(phase_seconds, PHASES)
start_at_zero(steps, ("workers", "journal"))
start_at_zero(tombstones, Phase)
start_at_zero(missing_values, ("teacher", "behaviour", "reference", "candidate", "score"))
start_at_zero(jobs, ("succeeded", "failed", "cancelled", "paused", "released", "lost", "unsaid"))


def begin(job_id: str, name: str, steps: int, max_staleness: int) -> None:
    """A job begins on this lane: what is shown of the one before is no longer so."""
    job_info.clear()
    job_info.labels(job_id, name).set(1)
    planned_steps.set(steps)
    staleness_bound.set(max_staleness)
    last_step.set_to_current_time()
    _forget()


def _forget() -> None:
    for gauge in _quantities.values():
        gauge.set(math.nan)  # not known; a zero would be a claim
    _forget_teachers()


def _forget_teachers() -> None:
    for gauge in _by_teacher.values():
        gauge.clear()


def show(heldout: Mapping[str, float | None]) -> None:
    """Show an evaluation as soon as it is known: the last one comes after the last step."""
    for quantity, value in heldout.items():
        _quantities[quantity].set(math.nan if value is None else value)


def publish(numbers: dict[str, float], seconds: float) -> None:
    """Show one step's numbers; `seconds` have passed since the step before."""
    _forget_teachers()  # a step may have no row of a teacher
    for name, value in numbers.items():
        quantity, _, teacher = name.partition("/")
        if teacher:
            _by_teacher[quantity].labels(teacher).set(value)
        else:
            _quantities[quantity].set(value)
    step_duration.observe(seconds)
    last_step.set(time.time())
    for phase in PHASES:
        phase_seconds.labels(phase).inc(numbers[f"seconds_{phase}"])
    tokens.inc(numbers["tokens"])
    skipped_updates.inc(numbers["skipped_updates"])
    missing_values.labels("teacher").inc(numbers["missing_teacher_tokens"])
    missing_values.labels("behaviour").inc(numbers["missing_behaviour_tokens"])
    missing_values.labels("reference").inc(numbers["missing_reference_tokens"])
    missing_values.labels("candidate").inc(numbers["missing_candidate_values"])
    missing_values.labels("score").inc(numbers["unscored_samples"])


_forget()
