"""Following a job to its end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

from potstill.cli.progress import Display
from potstill.client import Client
from potstill.contracts.job import Event, Job

CHECK_SECONDS = 0.5
_END = None


def follow(client: Client, job_id: str, display: Display, check: Callable[[], None] = lambda: None) -> Job:
    """Show events until the job has ended; returns it.

    `check` runs at least twice a second, and what it raises ends the wait. Raises ApiError and UnreachableError.
    """
    with display:
        for event in _events(client, job_id, check):
            display.take(event)
    return client.get(job_id)


def _events(client: Client, job_id: str, check: Callable[[], None]) -> Iterator[Event]:
    """Read in a thread of its own, so that a quiet stream keeps nobody from looking at other things."""
    arrived: queue.Queue[Event | Exception | None] = queue.Queue()

    def read() -> None:
        try:
            for event in client.events(job_id):
                arrived.put(event)
        except Exception as error:  # noqa: BLE001 - raised again where the events are read
            arrived.put(error)
        arrived.put(_END)

    threading.Thread(target=read, name="events", daemon=True).start()
    while True:
        check()
        try:
            item = arrived.get(timeout=CHECK_SECONDS)
        except queue.Empty:
            continue
        if item is _END:
            return
        if isinstance(item, Exception):
            raise item
        yield item
