"""Job records: submission, the lease of a lane, commands from people, events and metrics."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from potstill.broker import keys, scripts
from potstill.broker.connection import BLOCK_MILLISECONDS, Broker, BrokerError, stream_entries
from potstill.broker.trajectories import TrajectoryStream
from potstill.contracts.job import Event
from potstill.contracts.state import JobState

IDEMPOTENCY_SECONDS = 7 * 86_400
MAX_EVENTS = 20_000  # a bound on memory, not on correctness: the whole history is in the job's artifacts


class Command(StrEnum):
    """What a person wants of a job. A lane obeys at its next check."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


class JobNotFoundError(BrokerError):
    """There is no job of this id."""


class IllegalTransitionError(BrokerError):
    """The job's state does not allow the command."""

    def __init__(self, state: JobState, command: str) -> None:
        super().__init__(f"a job that is {state} cannot be asked to {command}")
        self.state, self.command = state, command


class IdempotencyConflictError(BrokerError):
    """The idempotency key was used before for another request."""


class LeaseLostError(BrokerError):
    """Another lane holds the job now, or the lease ran out: stop writing."""


@dataclass(frozen=True)
class JobRecord:
    """A job as stored, with the state that follows from it."""

    id: str
    state: JobState
    command: Command
    spec: dict[str, Any]
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    step: int = 0
    lane: str | None = None
    error: dict[str, Any] | None = None
    result: dict[str, Any] = field(default_factory=dict)


class JobStore:
    """All jobs."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._redis = broker.redis
        self._create = self._redis.register_script(scripts.CREATE)
        self._command = self._redis.register_script(scripts.COMMAND)
        self._claim = self._redis.register_script(scripts.CLAIM)
        self._renew = self._redis.register_script(scripts.RENEW)
        self._advance = self._redis.register_script(scripts.ADVANCE)

    async def create(self, job_id: str, spec: dict[str, Any], *, key: str | None = None, digest: str = "") -> str:
        """Store and queue a job. Returns its id, or the id that the same idempotency key made before.

        Raises IdempotencyConflictError when the key stands for a request with another digest.
        """
        names = [keys.JOBS, keys.JOB_SEQUENCE, keys.job(job_id), keys.idempotency(key or job_id), keys.OPEN_JOBS]
        arguments: list[Any] = [job_id, json.dumps(spec), time.time(), "1" if key else "", digest, IDEMPOTENCY_SECONDS]
        made: Any = await self._create(keys=names, args=arguments)
        if made is None:
            raise IdempotencyConflictError(f"idempotency key {key} was used for another request")
        return str(made.decode())

    async def submitted(self, key: str, digest: str) -> str | None:
        """The job that an idempotency key made, if any. Raises IdempotencyConflictError as `create` does."""
        known: Any = await self._redis.get(keys.idempotency(key))
        if known is None:
            return None
        job_id, _, recorded = known.decode().partition("|")
        if recorded != digest:
            raise IdempotencyConflictError(f"idempotency key {key} was used for another request")
        return str(job_id)

    async def get(self, job_id: str) -> JobRecord:
        """Raises JobNotFoundError."""
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hgetall(keys.job(job_id))
            pipe.exists(keys.lease(job_id))
            fields, leased = await pipe.execute()
        if not fields:
            raise JobNotFoundError(f"there is no job {job_id}")
        return _record(job_id, {k.decode(): v.decode() for k, v in fields.items()}, bool(leased))

    async def page(self, *, after: str | None, limit: int) -> list[JobRecord]:
        """Up to `limit` jobs, newest first, that are older than job `after`. Raises JobNotFoundError for `after`."""
        start = 0
        if after is not None:
            rank: Any = await self._redis.zrevrank(keys.JOBS, after)
            if rank is None:
                raise JobNotFoundError(f"there is no job {after}")
            start = int(rank) + 1
        ids: Any = await self._redis.zrevrange(keys.JOBS, start, start + limit - 1)
        return [await self.get(job_id.decode()) for job_id in ids]

    async def command(self, job_id: str, verb: str) -> JobState:
        """`cancel`, `pause` or `resume`; idempotent. Returns the state now.

        Raises JobNotFoundError, or IllegalTransitionError when the state does not allow it.
        """
        reply: Any = await self._command(keys=[keys.job(job_id), keys.lease(job_id)], args=[verb, time.time()])
        outcome, state = (part.decode() for part in reply)
        if outcome == "missing":
            raise JobNotFoundError(f"there is no job {job_id}")
        if outcome == "illegal":
            raise IllegalTransitionError(JobState(state), verb)
        if state == JobState.CANCELLED:
            await TrajectoryStream(self._broker, job_id).discard()  # no lane is left to do it
        return JobState(state)

    async def claim(self, lane: str, owner: str, incarnation: str, lease_seconds: float) -> JobRecord | None:
        """Take the oldest job that nobody works on. A successor of the same `owner` name takes over at once."""
        ids: Any = await self._redis.zrange(keys.OPEN_JOBS, 0, -1)
        for raw in ids:
            job_id = raw.decode()
            claimed = await self._claim(
                keys=[keys.job(job_id), keys.lease(job_id), keys.OPEN_JOBS],
                args=[lane, owner, incarnation, int(lease_seconds * 1000), time.time(), job_id],
            )
            if claimed:
                return await self.get(job_id)
        return None

    async def renew(self, job_id: str, owner: str, incarnation: str, lease_seconds: float) -> Command:
        """Extend the lease; returns what people want of the job. Raises LeaseLostError."""
        reply: Any = await self._renew(
            keys=[keys.job(job_id), keys.lease(job_id)], args=[f"{owner}|{incarnation}", int(lease_seconds * 1000)]
        )
        if reply is None:
            raise LeaseLostError(f"the lease on {job_id} is lost")
        return Command(reply.decode())

    async def advance(
        self,
        job_id: str,
        owner: str,
        incarnation: str,
        *,
        state: JobState | None = None,
        step: int | None = None,
        error: dict[str, Any] | None = None,
        result: dict[str, Any] | None = None,
        release: bool = False,
    ) -> None:
        """Record progress under the lease; `release` gives it back. Raises LeaseLostError.

        A `state` that the transition table does not allow is a bug of the caller and asserted by the script.
        """
        fields: dict[str, str | int | float] = {}
        if step is not None:
            fields["step"] = step
        if error is not None:
            fields["error"] = json.dumps(error)
        if result is not None:
            fields["result"] = json.dumps(result)
        if state is not None:
            fields["state"] = state
            if state.is_terminal:
                fields["finished_at"] = time.time()
            if state is JobState.RUNNING:
                fields["started_at"] = time.time()
            if state in (JobState.PAUSED, JobState.QUEUED) or state.is_terminal:
                fields["command"] = Command.RUN
        flat = [part for pair in fields.items() for part in pair]
        reply: Any = await self._advance(
            keys=[keys.job(job_id), keys.lease(job_id)],
            args=[f"{owner}|{incarnation}", "1" if release else "", *flat],
        )
        if not reply:
            raise LeaseLostError(f"the lease on {job_id} is lost")

    async def add_event(self, job_id: str, event: Event) -> str:
        """Append an event (its `id` is ignored); returns the id it got."""
        body = event.model_dump_json(exclude={"id"})
        entry: Any = await self._redis.xadd(keys.events(job_id), {"event": body}, maxlen=MAX_EVENTS, approximate=True)
        return str(entry.decode())

    async def events(self, job_id: str, *, after: str | None, limit: int) -> list[Event]:
        """Up to `limit` events after the event id `after`, oldest first."""
        first = f"({after}" if after else "-"
        entries: Any = await self._redis.xrange(keys.events(job_id), min=first, count=limit)
        return [_event(entry, fields) for entry, fields in entries]

    async def follow(self, job_id: str, *, after: str | None) -> AsyncIterator[Event | None]:
        """Events as they come, for ever; None whenever a while passes without one."""
        last = after or "0-0"
        while True:
            reply: Any = await self._redis.xread({keys.events(job_id): last}, count=100, block=BLOCK_MILLISECONDS)
            entries = stream_entries(reply)
            if not entries:
                yield None
            for entry, fields in entries:
                last = entry.decode()
                yield _event(entry, fields)

    async def add_metrics(self, job_id: str, step: int, values: dict[str, Any]) -> None:
        """Append one step's numbers."""
        body = json.dumps(values)
        await self._redis.xadd(keys.metrics(job_id), {"step": step, "metrics": body}, maxlen=100_000, approximate=True)

    async def metrics(self, job_id: str, *, after: str | None, limit: int) -> list[tuple[str, dict[str, Any]]]:
        """Up to `limit` (cursor, numbers with `step`) pairs after a cursor.

        A replayed step occurs again; the later one counts.
        """
        first = f"({after}" if after else "-"
        entries: Any = await self._redis.xrange(keys.metrics(job_id), min=first, count=limit)
        return [
            (entry.decode(), {"step": int(fields[b"step"])} | json.loads(fields[b"metrics"]))
            for entry, fields in entries
        ]


def _record(job_id: str, fields: dict[str, str], leased: bool) -> JobRecord:
    stored, command = JobState(fields["state"]), Command(fields.get("command", "run"))
    return JobRecord(
        id=job_id,
        state=derived_state(stored, command, leased),
        command=command,
        spec=json.loads(fields["spec"]),
        created_at=float(fields["created_at"]),
        started_at=float(fields["started_at"]) if "started_at" in fields else None,
        finished_at=float(fields["finished_at"]) if "finished_at" in fields else None,
        step=int(fields.get("step", 0)),
        lane=fields.get("lane") or None,
        error=json.loads(fields["error"]) if "error" in fields else None,
        result=json.loads(fields["result"]) if "result" in fields else {},
    )


def derived_state(stored: JobState, command: Command, leased: bool) -> JobState:
    """What a job is, given its record and whether a lane holds it: nothing runs that nobody runs."""
    if leased or stored not in (JobState.STARTING, JobState.RUNNING):
        return stored
    return {Command.CANCEL: JobState.CANCELLED, Command.PAUSE: JobState.PAUSED}.get(command, JobState.QUEUED)


def _event(entry: bytes, fields: dict[bytes, bytes]) -> Event:
    return Event(id=entry.decode(), **json.loads(fields[b"event"]))
