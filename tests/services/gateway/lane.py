"""A learner's part in a job's life, played by hand on the real store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from potstill.broker import Broker
from potstill.broker.jobs import JobStore
from potstill.contracts.job import Event
from potstill.contracts.state import JobState

T = TypeVar("T")
OWNER, INCARNATION = "learner", "1"


class Lane:
    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url

    def claim(self, job_id: str, lease_seconds: float = 60.0) -> None:
        """Claim jobs until this one is held; others that were left open are cancelled on the way."""

        async def work(store: JobStore) -> None:
            while (record := await store.claim("default", OWNER, INCARNATION, lease_seconds)) is not None:
                if record.id == job_id:
                    return
                await store.advance(record.id, OWNER, INCARNATION, state=JobState.CANCELLED, release=True)
            raise AssertionError(f"{job_id} cannot be claimed")

        self._do(work)

    def advance(self, job_id: str, **values: Any) -> None:
        self._do(lambda store: store.advance(job_id, OWNER, INCARNATION, **values))

    def say(self, job_id: str, message: str, kind: Any = "message", data: dict[str, Any] | None = None) -> str:
        event = Event(id="", created_at=time.time(), type=kind, message=message, data=data or {})
        return self._do(lambda store: store.add_event(job_id, event))

    def succeed(self, job_id: str, result: dict[str, Any] | None = None) -> None:
        self.advance(job_id, state=JobState.SUCCEEDED, result=result or {}, release=True)
        self.say(job_id, "the job has succeeded", "status", {"status": "succeeded"})

    def report(self, job_id: str, step: int, values: dict[str, Any]) -> None:
        self._do(lambda store: store.add_metrics(job_id, step, values))

    def _do(self, work: Callable[[JobStore], Awaitable[T]]) -> T:
        async def connected() -> T:
            broker = Broker.connect(self._redis_url, patient=False)
            try:
                return await work(JobStore(broker))
            finally:
                await broker.close()

        return asyncio.run(connected())
