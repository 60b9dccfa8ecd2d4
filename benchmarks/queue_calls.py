"""Run a process as it is, and count the seconds of its calls to the queue: `python -m benchmarks.queue_calls learner`

They are served among the process' own metrics, by call, as `benchmark_queue_seconds_total`. Encoding and decoding are
part of a call; the time that a blocking read waits for something to come is not. Calls that run at the same time count
each, and so does the time in which one waits for a core.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import runpy
import sys
import time
from typing import Any

from prometheus_client import Counter

from potstill.broker import Broker
from potstill.broker.jobs import JobStore
from potstill.broker.tickets import TicketQueue
from potstill.broker.trajectories import TrajectoryStream

SECONDS = "benchmark_queue_seconds_total"
_seconds = Counter(SECONDS, "Seconds of calls to the queue, without the waits of blocking reads.", ["call"])
_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("inside", default=False)
_waited: contextvars.ContextVar[float] = contextvars.ContextVar("waited", default=0.0)


def timed(kind: type, name: str) -> None:
    """Count the calls of a coroutine method; those that it makes itself are its own."""
    method = getattr(kind, name)

    @functools.wraps(method)
    async def call(*args: Any, **options: Any) -> Any:
        if _inside.get():
            return await method(*args, **options)
        is_inside, waited = _inside.set(True), _waited.set(0.0)
        begun = time.perf_counter()
        try:
            return await method(*args, **options)
        finally:
            _seconds.labels(f"{kind.__name__}.{name}").inc(time.perf_counter() - begun - _waited.get())
            _waited.reset(waited)
            _inside.reset(is_inside)

    setattr(kind, name, call)


def without_waits() -> None:
    """Take what a blocking read waits out of the call that it is part of."""
    read = Broker.read_group

    async def read_group(self: Broker, *args: Any, block: int | None, **options: Any) -> Any:
        begun = time.perf_counter()
        entries = await read(self, *args, block=block, **options)
        if block is not None:
            _waited.set(_waited.get() + time.perf_counter() - begun)
        return entries

    Broker.read_group = read_group  # type: ignore[method-assign]


def main() -> None:
    without_waits()
    for kind in (TicketQueue, TrajectoryStream, JobStore):
        for name, member in vars(kind).copy().items():
            if inspect.iscoroutinefunction(member) and not name.startswith("_"):
                timed(kind, name)
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
