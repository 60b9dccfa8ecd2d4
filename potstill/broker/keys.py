"""Key names. One hash tag, so that a script may touch all of them in a cluster."""

from __future__ import annotations

from potstill.contracts.ticket import Phase, TicketId

PREFIX = "{potstill}:"
JOBS = PREFIX + "jobs"  # zset: job id by creation order
OPEN_JOBS = PREFIX + "jobs:open"  # zset: those a lane may have to look at, oldest first
JOB_SEQUENCE = PREFIX + "jobs:sequence"  # counter behind that order
TICKET_GROUP = "rollout"
TRAJECTORY_GROUP = "learner"


def job(job_id: str) -> str:
    """Hash: spec, state, command, progress."""
    return f"{PREFIX}job:{job_id}"


def lease(job_id: str) -> str:
    """String with a time to live: which lane holds the job."""
    return f"{PREFIX}job:{job_id}:lease"


def events(job_id: str) -> str:
    """Stream of what a person is told."""
    return f"{PREFIX}job:{job_id}:events"


def metrics(job_id: str) -> str:
    """Stream with one entry a step."""
    return f"{PREFIX}job:{job_id}:metrics"


def trajectories(job_id: str) -> str:
    """Stream of finished groups that the learner has not yet acknowledged."""
    return f"{PREFIX}job:{job_id}:trajectories"


def ticket_steps(job_id: str) -> str:
    """Set of the `ticket_states` keys that exist for a job."""
    return f"{PREFIX}job:{job_id}:steps"


def floor(job_id: str) -> str:
    """Highest training step whose tickets are settled for ever."""
    return f"{PREFIX}job:{job_id}:floor"


def ticket_states(ticket: TicketId) -> str:
    """Hash of slot to `open` or `done`, one a step."""
    return step_states(ticket.job, ticket.phase, ticket.step)


def step_states(job_id: str, phase: Phase, step: int) -> str:
    return f"{PREFIX}job:{job_id}:step:{phase}:{step}"


def tickets(lane: str) -> str:
    """Stream of the tickets that a lane's rollout workers share."""
    return f"{PREFIX}lane:{lane}:tickets"


def idempotency(key: str) -> str:
    """String: what a submission under this key made."""
    return f"{PREFIX}idempotency:{key}"
