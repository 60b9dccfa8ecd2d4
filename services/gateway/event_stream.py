"""A job's events as server-sent events, until the job has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from potstill.broker.connection import RETRYABLE
from potstill.broker.jobs import JobStore
from potstill.contracts.job import Event
from potstill.contracts.state import JobState
from potstill.service.logs import get_logger
from services.gateway import metrics

log = get_logger("gateway")


async def stream_events(
    store: JobStore, job_id: str, after: str | None, draining: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Events after an id, as they come, with a comment whenever a while passes without one.

    Ends after the status event of a terminal state, when the gateway is told to stop, or when Redis goes away; a client
    comes back with the last id it saw.
    """
    metrics.event_streams.inc()
    try:
        async for event in store.follow(job_id, after=after):
            if event is not None:
                yield format_sse_event(data_str=event.model_dump_json(), event=event.type, id=event.id)
            if draining() or await _has_ended(store, job_id, event):
                return
            if event is None:
                yield KEEPALIVE_COMMENT
    except RETRYABLE as error:
        log.warning("an event stream ends because Redis does not answer", job=job_id, error=str(error))
    finally:
        metrics.event_streams.dec()


async def _has_ended(store: JobStore, job_id: str, event: Event | None) -> bool:
    if event is not None:
        return event.type == "status" and event.data.get("status") in _TERMINAL
    # A lane that died after a cancel leaves no event; the state that follows from the record is the truth.
    return (await store.get(job_id)).state.is_terminal


_TERMINAL = frozenset(state.value for state in JobState if state.is_terminal)
