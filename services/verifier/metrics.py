"""Metrics of a verifier."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from potstill.contracts.verification import Verdict
from potstill.service.metrics import LATENCY_BUCKETS, start_at_zero
from services.verifier.kinds import MODULES

ITEM_BUCKETS = (0.0001, 0.00025, 0.0005, *LATENCY_BUCKETS)

verdicts = Counter("potstill_verifier_verdicts_total", "Items judged.", ["kind", "verdict"])
item_seconds = Histogram(
    "potstill_verifier_item_seconds", "Time a worker spends on an item.", ["kind"], buckets=ITEM_BUCKETS
)
queue_seconds = Histogram("potstill_verifier_queue_seconds", "Time an item waits for a worker.", buckets=ITEM_BUCKETS)
queue_depth = Gauge("potstill_verifier_queue_depth", "Items that wait for a worker.")
workers = Gauge("potstill_verifier_workers", "Workers that passed their self-test and live.")
self_tests = Counter("potstill_verifier_self_tests_total", "Self-tests of workers that started.", ["outcome"])
isolation = Gauge("potstill_verifier_isolation", "1 for a layer that every worker has found in force.", ["layer"])
workers_ended = Counter(
    "potstill_verifier_workers_ended_total",
    "Workers that ended and were replaced: deadline, cpu, memory, sandbox, recycled, died, garbled, self_test.",
    ["reason"],
)

start_at_zero(verdicts, MODULES, Verdict)
start_at_zero(item_seconds, MODULES)
start_at_zero(self_tests, ("passed", "failed"))
start_at_zero(workers_ended, ("deadline", "cpu", "memory", "recycled", "died", "garbled", "self_test"))
