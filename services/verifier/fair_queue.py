"""Items that wait, one from each request in turn: a long or hostile batch does not hold up the others."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

from potstill.contracts.verification import VerifyItem
from services.verifier.judgement import Judgement
from services.verifier.parts import Progress


@dataclass(eq=False)  # two jobs are never the same one
class Job:
    item: VerifyItem
    outcome: asyncio.Future[Judgement | None]  # None: there was no need to judge it
    place: int = 0  # among the parts of its item
    progress: Progress | None = None
    queued_at: float = field(default_factory=time.perf_counter)

    @property
    def is_needless(self) -> bool:
        return self.progress is not None and self.progress.makes_needless(self.place)

    def settle(self, judgement: Judgement | None) -> None:
        if judgement is not None and self.progress is not None:
            self.progress.note(self.place, judgement)
        if not self.outcome.done():
            self.outcome.set_result(judgement)


class FairQueue:
    def __init__(self) -> None:
        self._batches: deque[deque[Job]] = deque()
        self._arrived = asyncio.Event()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, jobs: list[Job]) -> deque[Job]:
        """Add the jobs of one request, which keep their order; what comes back may be given to `discard`."""
        batch = deque(jobs)
        if batch:
            self._batches.append(batch)
            self._size += len(batch)
            self._arrived.set()
        return batch

    def discard(self, batch: deque[Job]) -> None:
        """Forget what still waits of a request."""
        if batch:
            self._batches.remove(batch)
            self._size -= len(batch)

    async def next(self) -> Job:
        """The next job; waits for one."""
        while not self._batches:
            self._arrived.clear()
            await self._arrived.wait()
        batch = self._batches.popleft()
        job = batch.popleft()
        if batch:
            self._batches.append(batch)
        self._size -= 1
        return job
