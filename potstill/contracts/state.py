"""The life of a job, as one table."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    QUEUED = "queued"  # waits for a lane
    STARTING = "starting"  # a lane loads it
    RUNNING = "running"
    PAUSED = "paused"  # holds no lane; resuming queues it again
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return not TRANSITIONS[self]


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.STARTING, JobState.PAUSED, JobState.CANCELLED, JobState.FAILED}),
    # A lane that dies hands the job back to the queue.
    JobState.STARTING: frozenset(
        {JobState.RUNNING, JobState.QUEUED, JobState.PAUSED, JobState.CANCELLED, JobState.FAILED}
    ),
    JobState.RUNNING: frozenset(
        {JobState.SUCCEEDED, JobState.QUEUED, JobState.PAUSED, JobState.CANCELLED, JobState.FAILED}
    ),
    JobState.PAUSED: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}


def is_legal(before: JobState, after: JobState) -> bool:
    """Whether the table has this transition."""
    return after in TRANSITIONS[before]
