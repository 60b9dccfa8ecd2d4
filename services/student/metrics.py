"""Metrics of the student service."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from potstill.contracts.generation import FinishReason
from potstill.service.errors import OverloadedError, TooLargeError, TooManyRequestsError
from potstill.service.metrics import LATENCY_BUCKETS, start_at_zero

samples = Counter("potstill_student_samples_total", "Samples answered, by finish reason.", ["finish_reason"])
tokens = Counter(
    "potstill_student_tokens_total",
    "Tokens of answered samples: `prompt` (once a prompt, however many samples) and `response`.",
    ["kind"],
)
generate_seconds = Histogram(
    "potstill_student_generate_seconds", "From admission of a request to its samples.", buckets=LATENCY_BUCKETS
)
samples_pending = Gauge("potstill_student_samples_pending", "Samples admitted and not answered yet.")
samples_running = Gauge("potstill_student_samples_running", "Samples that hold a slot of the torch engine.")
decode_steps = Counter("potstill_student_decode_steps_total", "Decode steps of the torch engine.")
decode_seconds = Counter("potstill_student_decode_seconds_total", "Time in decode steps of the torch engine.")
prefill_seconds = Counter("potstill_student_prefill_seconds_total", "Time reading prompts in the torch engine.")
aborts = Counter("potstill_student_aborted_samples_total", "Samples given up because their caller hung up.")
rejections = Counter("potstill_student_rejections_total", "Requests refused, by problem code.", ["code"])
policy_version = Gauge("potstill_student_policy_version", "Optimizer steps behind the weights that serve.")
policy_swaps = Counter("potstill_student_policy_swaps_total", "Attempts to load a policy.", ["outcome"])
policy_swap_seconds = Histogram(
    "potstill_student_policy_swap_seconds",
    "Seconds of a swap: `drain` for samples in flight, `load` for the weights.",
    ["phase"],
    buckets=LATENCY_BUCKETS,
)

start_at_zero(samples, FinishReason)
start_at_zero(tokens, ("prompt", "response"))
start_at_zero(rejections, (TooLargeError.code, TooManyRequestsError.code, OverloadedError.code))
start_at_zero(policy_swaps, ("loaded", "failed"))
start_at_zero(policy_swap_seconds, ("drain", "load"))
