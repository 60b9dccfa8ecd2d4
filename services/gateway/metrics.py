"""Metrics of the gateway."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from potstill.service.metrics import start_at_zero
from services.gateway.errors import JobRefusedError, NotConfiguredError, ServiceDownError

jobs = Gauge("potstill_jobs", "Jobs by state.", ["state"])
submissions = Counter("potstill_job_submissions_total", "Jobs accepted; replayed ones are repeats.", ["outcome"])
refusals = Counter("potstill_job_refusals_total", "Submissions refused, by the code of the problem.", ["code"])
commands = Counter("potstill_job_commands_total", "Cancel, pause and resume, by how they ended.", ["verb", "outcome"])
event_streams = Gauge("potstill_event_streams_open", "Event streams (SSE) being followed.")

queue_server_up = Gauge("potstill_queue_server_up", "1 while Redis or Valkey answers the gateway.")
queue_server_memory_bytes = Gauge("potstill_queue_server_memory_bytes", "Memory that Redis or Valkey uses.")
queue_server_memory_limit_bytes = Gauge(
    "potstill_queue_server_memory_limit_bytes", "Its `maxmemory`; without one, the memory of its machine."
)
trajectory_groups = Gauge("potstill_trajectory_groups", "Groups that no learner has taken onto its disk yet.")
trajectory_oldest_seconds = Gauge("potstill_trajectory_oldest_seconds", "Age of the oldest of them, over all jobs.")

start_at_zero(submissions, ("accepted", "replayed"))
start_at_zero(refusals, (JobRefusedError.code, NotConfiguredError.code, ServiceDownError.code))
start_at_zero(commands, ("cancel", "pause", "resume"), ("accepted", "illegal"))
