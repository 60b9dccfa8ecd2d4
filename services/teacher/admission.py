"""Admission by estimated memory: work waits until it fits, and is refused when it never will."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from potstill.service.errors import OverloadedError, TooLargeError
from services.teacher import metrics

RETRY_SECONDS = 5.0


@dataclass(eq=False)
class _Waiter:
    num_bytes: int
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Admission:
    """Lets requests in, first come first served, while their estimates together stay under `limit_bytes`."""

    def __init__(self, limit_bytes: int, max_waiting: int, wait_seconds: float) -> None:
        self.limit_bytes = limit_bytes
        self.max_waiting = max_waiting
        self.wait_seconds = wait_seconds
        self._admitted_bytes = 0
        self._waiting: deque[_Waiter] = deque()
        metrics.memory_limit_bytes.set(limit_bytes)

    @asynccontextmanager
    async def admit(self, num_bytes: int) -> AsyncIterator[None]:
        """Hold `num_bytes` while the body runs.

        Raises TooLargeError when they can never fit, OverloadedError when too many wait or the wait was too long.
        """
        if num_bytes > self.limit_bytes:
            raise TooLargeError(
                f"the request needs about {num_bytes} bytes and the engine may use {self.limit_bytes}: send fewer or "
                f"shorter sequences or a smaller top_k at once, or raise POTSTILL_TEACHER_MEMORY_BYTES"
            )
        begun = time.perf_counter()
        await self._enter(num_bytes)
        metrics.phase_seconds.labels("wait").observe(time.perf_counter() - begun)
        metrics.requests_running.inc()
        try:
            yield
        finally:
            metrics.requests_running.dec()
            self._take(-num_bytes)
            self._let_in()

    async def _enter(self, num_bytes: int) -> None:
        if not self._waiting and self._fits(num_bytes):
            self._take(num_bytes)
            return
        if len(self._waiting) >= self.max_waiting:
            raise OverloadedError(f"{len(self._waiting)} requests are waiting already", retry_after=RETRY_SECONDS)
        waiter = _Waiter(num_bytes)
        self._waiting.append(waiter)
        metrics.requests_pending.inc()
        try:
            async with asyncio.timeout(self.wait_seconds):
                await waiter.turn
        except (TimeoutError, asyncio.CancelledError) as error:
            self._leave(waiter)
            if isinstance(error, TimeoutError):
                raise OverloadedError(
                    f"the request was not admitted within {self.wait_seconds:g} s", retry_after=RETRY_SECONDS
                ) from error
            raise
        finally:
            metrics.requests_pending.dec()

    def _leave(self, waiter: _Waiter) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        elif waiter.turn.done() and not waiter.turn.cancelled():
            self._take(-waiter.num_bytes)  # let in at the very moment it gave up
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0].num_bytes):
            waiter = self._waiting.popleft()
            if not waiter.turn.done():
                self._take(waiter.num_bytes)
                waiter.turn.set_result(None)

    def _fits(self, num_bytes: int) -> bool:
        return self._admitted_bytes + num_bytes <= self.limit_bytes

    def _take(self, num_bytes: int) -> None:
        self._admitted_bytes += num_bytes
        metrics.admitted_bytes.set(self._admitted_bytes)
