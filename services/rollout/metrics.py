"""Metrics of a rollout worker."""

from __future__ import annotations

import msgspec
from prometheus_client import Counter, Gauge, Histogram

from potstill.contracts.ticket import Phase
from potstill.contracts.trajectory import Timings
from potstill.contracts.verification import Verdict
from potstill.service.metrics import LATENCY_BUCKETS, start_at_zero
from services.rollout.errors import Reason

tickets = Counter("potstill_rollout_tickets_total", "Tickets by phase and how they ended.", ["phase", "outcome"])
tombstones = Counter("potstill_rollout_tombstones_total", "Tickets given up, by reason.", ["phase", "reason"])
critiques = Counter("potstill_rollout_critiques_total", "Critiques: answered, cached, failed.", ["outcome"])
in_progress = Gauge("potstill_rollout_tickets_in_progress", "Tickets being worked on.")
retries = Counter(
    "potstill_rollout_retries_total", "Requests repeated, by whom they were to and why.", ["peer", "reason"]
)
phase_seconds = Histogram(
    "potstill_rollout_phase_seconds",
    "Seconds of a ticket: queued, then generating, then scoring and verifying.",
    ["phase"],
    buckets=LATENCY_BUCKETS,
)
samples = Counter("potstill_rollout_samples_total", "Samples handed in.", ["phase"])
tokens = Counter("potstill_rollout_tokens_total", "Tokens by what they were.", ["phase", "kind"])
verdicts = Counter("potstill_rollout_verdicts_total", "Verdicts received.", ["phase", "verdict"])
queue_tickets = Gauge("potstill_queue_tickets", "Tickets in the lane's queue.", ["state"])
queue_oldest_seconds = Gauge("potstill_queue_oldest_ticket_seconds", "Age of the oldest ticket in the lane's queue.")

start_at_zero(tickets, Phase, ("completed", "tombstone", "duplicate", "dropped", "aborted"))
start_at_zero(tombstones, Phase, Reason)
start_at_zero(critiques, ("answered", "cached", "failed"))
start_at_zero(retries, ("student", "teacher", "verifier"), ("connection", "429", "503"))
start_at_zero(phase_seconds, (field.name for field in msgspec.structs.fields(Timings)))
start_at_zero(samples, Phase)
start_at_zero(tokens, Phase, ("prompt", "response", "scored"))
start_at_zero(verdicts, Phase, Verdict)
