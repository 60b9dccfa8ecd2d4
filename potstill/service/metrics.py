"""Metrics that every HTTP process exports. All names start with `potstill_`; units are seconds, bytes, tokens."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from prometheus_client import Counter, Gauge, Histogram

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

http_requests = Counter("potstill_http_requests_total", "Requests answered.", ["service", "route", "method", "status"])
http_request_seconds = Histogram(
    "potstill_http_request_seconds", "Time from request to answer.", ["service", "route"], buckets=LATENCY_BUCKETS
)
http_in_flight = Gauge("potstill_http_requests_in_flight", "Requests being worked on.", ["service"])
build_info = Gauge("potstill_build_info", "Always 1; the version is a label.", ["service", "version"])


def start_at_zero(metric: Counter | Histogram, *values: Iterable[str]) -> None:
    """Export every combination of label values from the start: a rate needs the zero before the first count."""
    for combination in product(*values):
        metric.labels(*combination)
