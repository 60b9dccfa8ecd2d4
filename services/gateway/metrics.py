"""Metrics of the gateway."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

jobs = Gauge("potstill_jobs", "Jobs by state.", ["state"])
submissions = Counter("potstill_job_submissions_total", "Jobs accepted; replayed ones are repeats.", ["outcome"])
refusals = Counter("potstill_job_refusals_total", "Submissions refused, by the code of the problem.", ["code"])
commands = Counter("potstill_job_commands_total", "Cancel, pause and resume, by how they ended.", ["verb", "outcome"])
event_streams = Gauge("potstill_event_streams_open", "Event streams (SSE) being followed.")
