"""Metrics of a learner. The quantities of a step are gauges of the newest step."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from learner.report import QUANTITIES

_quantities = {name: Gauge(f"potstill_learner_step_{name}", description) for name, description in QUANTITIES.items()}
teacher_reverse_kl = Gauge("potstill_learner_teacher_reverse_kl", "Reverse KL by teacher, nats per token.", ["teacher"])
step = Gauge("potstill_learner_step", "Optimizer steps taken by the job this lane works on.")
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


def publish(numbers: dict[str, float]) -> None:
    """Show one step's numbers."""
    for name, value in numbers.items():
        quantity, _, teacher = name.partition("/")
        if teacher:
            teacher_reverse_kl.labels(teacher).set(value)
        else:
            _quantities[quantity].set(value)
    tokens.inc(numbers["tokens"])
    skipped_updates.inc(numbers["skipped_updates"])
    missing_values.labels("teacher").inc(numbers["missing_teacher_tokens"])
    missing_values.labels("behaviour").inc(numbers["missing_behaviour_tokens"])
    missing_values.labels("reference").inc(numbers["missing_reference_tokens"])
    missing_values.labels("candidate").inc(numbers["missing_candidate_values"])
    missing_values.labels("score").inc(numbers["unscored_samples"])
