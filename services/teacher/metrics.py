"""Metrics of the teacher service."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from potstill.service.errors import OverloadedError, TooLargeError, TooManyRequestsError
from potstill.service.metrics import LATENCY_BUCKETS, start_at_zero

sequences = Counter("potstill_teacher_sequences_total", "Sequences answered, kept answers included.")
tokens = Counter(
    "potstill_teacher_tokens_total",
    "Tokens read: `prompt_computed`, `prompt_reused` (shared in a group, or from the prefix cache), `response`.",
    ["kind"],
)
missing_values = Counter(
    "potstill_teacher_missing_values_total", "Values answered as NaN because they could not be had.", ["field"]
)
phase_seconds = Histogram(
    "potstill_teacher_phase_seconds",
    "Seconds of a request: `wait` for admission, `compute` from then to the answer.",
    ["phase"],
    buckets=LATENCY_BUCKETS,
)
requests_running = Gauge("potstill_teacher_requests_running", "Admitted requests.")
requests_pending = Gauge("potstill_teacher_requests_pending", "Requests waiting for admission.")
admitted_bytes = Gauge("potstill_teacher_admitted_bytes", "Estimated memory of admitted requests.")
memory_limit_bytes = Gauge("potstill_teacher_memory_limit_bytes", "What admitted requests may take together.")
prefix_bytes = Gauge("potstill_teacher_prefix_cache_bytes", "Keys and values kept of prompt prefixes.")
cache_lookups = Counter(
    "potstill_teacher_score_cache_sequences_total",
    "Sequences looked up among kept answers: `hit`, `shared` with a request in work, or `miss`.",
    ["result"],
)
cache_bytes = Gauge("potstill_teacher_score_cache_bytes", "Answers kept.")
rejections = Counter("potstill_teacher_rejections_total", "Requests refused, by problem code.", ["code"])

start_at_zero(tokens, ("prompt_computed", "prompt_reused", "response"))
start_at_zero(missing_values, ("logprobs",))
start_at_zero(phase_seconds, ("wait", "compute"))
start_at_zero(rejections, (TooLargeError.code, TooManyRequestsError.code, OverloadedError.code))
