"""Metrics of a rollout worker."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from potstill.service.metrics import LATENCY_BUCKETS

tickets = Counter("potstill_rollout_tickets_total", "Tickets by phase and how they ended.", ["phase", "outcome"])
tombstones = Counter("potstill_rollout_tombstones_total", "Tickets given up, by reason.", ["phase", "reason"])
critiques = Counter("potstill_rollout_critiques_total", "Critiques: answered, cached, failed.", ["outcome"])
in_progress = Gauge("potstill_rollout_tickets_in_progress", "Tickets being worked on.")
retries = Counter("potstill_rollout_retries_total", "Requests repeated, by service and reason.", ["service", "reason"])
phase_seconds = Histogram(
    "potstill_rollout_phase_seconds", "Seconds a ticket spends in each phase.", ["phase"], buckets=LATENCY_BUCKETS
)
samples = Counter("potstill_rollout_samples_total", "Samples handed in.", ["phase"])
tokens = Counter("potstill_rollout_tokens_total", "Tokens by what they were.", ["phase", "kind"])
verdicts = Counter("potstill_rollout_verdicts_total", "Verdicts received.", ["phase", "verdict"])
queue_tickets = Gauge("potstill_queue_tickets", "Tickets in the lane's queue.", ["state"])
queue_oldest_seconds = Gauge("potstill_queue_oldest_ticket_seconds", "Age of the oldest ticket in the lane's queue.")
