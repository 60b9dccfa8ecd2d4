"""What the gateway tells Prometheus of the queue server and of the jobs on it."""

from __future__ import annotations

import asyncio
import contextlib

from potstill.broker import Broker
from potstill.broker.connection import RETRYABLE
from potstill.broker.jobs import JobStore
from potstill.broker.trajectories import TrajectoryStream
from potstill.contracts.state import JobState
from potstill.service.logs import get_logger
from services.gateway import metrics

PAGE = 500
log = get_logger("gateway")


async def watch_until(stopping: asyncio.Event, broker: Broker, seconds: float) -> None:
    """Set the gauges every `seconds`, until `stopping` is set."""
    while not stopping.is_set():
        try:
            await _look(broker)
        except RETRYABLE as error:
            metrics.queue_server_up.set(0)
            log.warning("the queue server cannot be watched", error=str(error))
        except Exception:  # a record that cannot be read is no reason to refuse everybody's requests
            metrics.queue_server_up.set(0)
            log.exception("the queue cannot be watched")
        else:
            metrics.queue_server_up.set(1)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), seconds)


async def _look(broker: Broker) -> None:
    memory = await broker.memory()
    metrics.queue_server_memory_bytes.set(memory.used_bytes)
    metrics.queue_server_memory_limit_bytes.set(memory.limit_bytes)
    running = await _count_states(JobStore(broker))
    depths = [await TrajectoryStream(broker, job).depth() for job in running]
    metrics.trajectory_groups.set(sum(depth.groups for depth in depths))
    metrics.trajectory_oldest_seconds.set(max((depth.oldest_seconds for depth in depths), default=0.0))


async def _count_states(store: JobStore) -> list[str]:
    """Set the gauge of jobs by state; returns the jobs that run."""
    counts = dict.fromkeys(JobState, 0)
    running: list[str] = []
    after: str | None = None
    while records := await store.page(after=after, limit=PAGE):
        for record in records:
            counts[record.state] += 1
        running += [record.id for record in records if record.state is JobState.RUNNING]
        after = records[-1].id
    for state, count in counts.items():
        metrics.jobs.labels(state).set(count)
    return running
