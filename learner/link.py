"""Asynchronous calls from blocking code: one event loop in one thread beside the trainer."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

CHECK_SECONDS = 0.2


class LinkTimeoutError(Exception):
    """The call did not end in the time it was given."""


class Link:
    """The loop that owns every connection of a learner."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `work` beside the caller; cancel the future to stop it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(
        self, work: Coroutine[Any, Any, T], *, check: Callable[[], None] | None = None, timeout: float | None = None
    ) -> T:
        """Wait for `work`. What `check` raises meanwhile cancels it, and so does the timeout (LinkTimeoutError)."""
        future = self.start(work)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not concurrent.futures.wait([future], CHECK_SECONDS).done:
                if check is not None:
                    check()
                if deadline is not None and time.monotonic() > deadline:
                    raise LinkTimeoutError(f"no answer within {timeout:.0f} s")
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
