"""One job's record and queues, for blocking code under its lease."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from learner.control import Control
from learner.link import Link
from potstill.broker import Broker
from potstill.broker.jobs import JobStore, LeaseLostError
from potstill.broker.tickets import TicketQueue
from potstill.broker.trajectories import Received, TrajectoryStream
from potstill.contracts.job import Event
from potstill.contracts.state import JobState
from potstill.contracts.ticket import Ticket

T = TypeVar("T")

BLOCK_MILLISECONDS = 500
LONGEST_RENEWAL_SECONDS = 2.0  # a person who cancels waits no longer than this
PARTING_SECONDS = 10.0  # what the last words of a job may take


@dataclass(frozen=True)
class Holder:
    """Who holds the lease. `incarnation` is new for every claim."""

    lane: str
    owner: str
    incarnation: str
    lease_seconds: float


class JobChannel:
    """Every call stops for what `control` says; those at the end of a job stop at a deadline instead."""

    def __init__(self, link: Link, broker: Broker, job_id: str, holder: Holder, control: Control) -> None:
        self._link, self._job, self._holder, self._control = link, job_id, holder, control
        self._store = JobStore(broker)
        self._queue = TicketQueue(broker, holder.lane)
        self._stream = TrajectoryStream(broker, job_id)

    async def keep_lease(self) -> None:
        """Renew until cancelled or lost."""
        holder = self._holder
        while True:
            asked_at = time.monotonic()
            try:
                command = await self._store.renew(self._job, holder.owner, holder.incarnation, holder.lease_seconds)
            except LeaseLostError as error:
                self._control.lose(str(error))
                return
            self._control.renewed(asked_at, command)
            await asyncio.sleep(min(LONGEST_RENEWAL_SECONDS, holder.lease_seconds / 3))

    def issue(self, tickets: Sequence[Ticket]) -> int:
        return self._call(self._queue.issue(tickets))

    def new_groups(self) -> list[Received]:
        """Groups that came, after half a second at most."""
        return self._call(self._stream.new(block=BLOCK_MILLISECONDS))

    def pending_groups(self) -> list[Received]:
        return self._call(self._stream.pending())

    def acknowledge(self, entries: Sequence[bytes]) -> None:
        self._call(self._stream.acknowledge(entries))

    def settle(self, step: int) -> None:
        self._call(self._stream.settle(step))

    def settle_eval(self, step: int) -> None:
        self._call(self._stream.settle_eval(step))

    def running(self, step: int) -> None:
        self._call(self._advance(state=JobState.RUNNING, step=step))

    def progress(self, step: int, numbers: dict[str, float]) -> None:
        """Record a finished step and its numbers."""
        self._call(self._advance(step=step))
        self._call(self._store.add_metrics(self._job, step, numbers))
        self._call(
            self._store.add_event(self._job, _event("info", "metrics", f"step {step}", {"step": step, **numbers}))
        )

    def say(self, message: str, *, level: Literal["info", "warning", "error"] = "info", **data: Any) -> None:
        self._call(self._store.add_event(self._job, _event(level, "message", message, data)))

    def release(self) -> None:
        """Give the lease back; what becomes of the job follows from its command: queued, paused or cancelled."""
        self._part(self._advance(release=True))

    def end(
        self, state: JobState, *, error: dict[str, Any] | None = None, result: dict[str, Any] | None = None
    ) -> None:
        """Forget the job's tickets and groups, record how it ended, and give the lease back."""
        self._part(self._stream.discard())
        self._part(self._advance(state=state, error=error, result=result, release=True))
        level: Literal["info", "error"] = "error" if error else "info"
        message = f"the job {state}" if error is None else f"the job failed: {error['detail']}"
        self._part(self._store.add_event(self._job, _event(level, "status", message, {"status": state})))

    async def _advance(self, **changes: Any) -> None:
        try:
            await self._store.advance(self._job, self._holder.owner, self._holder.incarnation, **changes)
        except LeaseLostError as error:
            self._control.lose(str(error))
            raise

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._link.call(work, check=self._control.check)
        except LeaseLostError:
            self._control.check()
            raise

    def _part(self, work: Coroutine[Any, Any, T]) -> T:
        return self._link.call(work, timeout=PARTING_SECONDS)


def _event(
    level: Literal["info", "warning", "error"],
    kind: Literal["message", "metrics", "status"],
    message: str,
    data: dict[str, Any],
) -> Event:
    return Event(id="", created_at=time.time(), level=level, type=kind, message=message, data=data)
