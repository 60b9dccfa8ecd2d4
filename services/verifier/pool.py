"""A pool of worker processes in which every item ends at its deadline, whatever it is.

`workers` items are judged at once; half as many processes more are kept warm, so that a killed worker's place is taken
at once while another starts.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from potstill.contracts.verification import VerifyItem
from potstill.service.background import in_background
from potstill.service.errors import OverloadedError, TooLargeError, UnavailableError
from potstill.service.logs import get_logger
from services.verifier import metrics
from services.verifier.fair_queue import FairQueue, Job
from services.verifier.judgement import Judgement, sandbox_error, undetermined
from services.verifier.parts import Progress, count, join, split
from services.verifier.process import (
    DeadlineExpiredError,
    WorkerAbsentError,
    WorkerDiedError,
    WorkerOptions,
    WorkerProcess,
    WorkerStartError,
)

ATTEMPTS = 2  # a worker that dies may have been killed for another's sake; two in a row are the item's doing
START_BACKOFF_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0)
RECYCLE_SPREAD = 0.7
MAX_RETRY_AFTER_SECONDS = 30.0
log = get_logger("verifier")


class Pool:
    """Use as an async context manager."""

    def __init__(self, workers: int, max_pending: int, options: WorkerOptions, required: tuple[str, ...] = ()) -> None:
        self._workers, self._max_pending, self._options = workers, max_pending, options
        self._required = required
        self._queue = FairQueue()
        self._idle: asyncio.Queue[WorkerProcess] = asyncio.Queue()
        self._living: set[WorkerProcess] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._was_full = False
        self._last_failure = ""
        self._mean_seconds = 0.01  # moving average over items, for the advice to those turned away

    async def __aenter__(self) -> Self:
        processes = self._workers + math.ceil(self._workers / 2)
        self._tasks = [in_background(self._keep_worker(), "a worker's place", "verifier") for _ in range(processes)]
        self._tasks += [in_background(self._dispatch(), "dispatch", "verifier") for _ in range(self._workers)]
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def isolation(self) -> tuple[str, ...]:
        """The layers that every living worker reports."""
        reported = [worker.hello.isolation for worker in self._living]
        return tuple(layer for layer in reported[0] if all(layer in one for one in reported)) if reported else ()

    @property
    def unavailable(self) -> dict[str, str]:
        """The kinds that some worker cannot judge, and why."""
        return {kind: why for worker in self._living for kind, why in worker.hello.unavailable.items()}

    async def judge(self, items: Sequence[VerifyItem]) -> list[Judgement]:
        """Judge a batch, in order. Raises OverloadedError, or TooLargeError for what can never be admitted.

        Cancelling gives up the items that still wait.
        """
        size = sum(map(count, items))
        if size > self._max_pending:
            what = f"{self._max_pending} items, or tests of items"
            raise TooLargeError(f"a request may have {what} (POTSTILL_VERIFIER_MAX_PENDING), not {size}")
        if len(self._queue) + size > self._max_pending:
            seconds = min(MAX_RETRY_AFTER_SECONDS, len(self._queue) * self._mean_seconds / self._workers)
            raise OverloadedError(f"{len(self._queue)} items wait already: come back later", retry_after=seconds)
        parts = [_jobs(item) for item in items]
        jobs = [job for each in parts for job in each]
        waiting = self._queue.add(jobs)
        metrics.queue_depth.set(len(self._queue))
        try:
            await asyncio.gather(*(job.outcome for job in jobs))
            return [join(item, [job.outcome.result() for job in each]) for item, each in zip(items, parts, strict=True)]
        finally:
            self._queue.discard(waiting)
            metrics.queue_depth.set(len(self._queue))

    async def ask(self, item: VerifyItem) -> Judgement:
        """Have an idle worker judge one item now, past the queue: for probes."""
        return await self._run(item, time.perf_counter())

    def check_ready(self) -> None:
        """Raises UnavailableError before all workers have passed their self-test once, while none lives, and without a
        layer that is required."""
        if not self._was_full:
            state = f"{len(self._living)} of {self._workers} workers have passed their self-test"
            raise UnavailableError(f"{state}; last failure: {self._last_failure}" if self._last_failure else state)
        if not self._living:
            raise UnavailableError(f"no worker lives; last failure: {self._last_failure or 'none'}")
        absent = [layer for layer in self._required if layer not in self.isolation]
        if absent:
            raise UnavailableError(f"POTSTILL_ISOLATION_MINIMUM asks for {absent[0]}: {self._why_not(absent[0])}")

    def _why_not(self, layer: str) -> str:
        for worker in self._living:
            reasons = worker.hello.missing | worker.hello.unavailable
            reason = reasons.get(layer) or reasons.get("namespaces" if layer.endswith("_namespace") else "code")
            if reason:
                return reason
        return "no worker reports it"

    async def _keep_worker(self) -> None:
        """One place in the pool: start a worker, wait for its end, start the next."""
        failures = 0
        while True:
            try:
                worker = await WorkerProcess.start(self._own_options())
            except (WorkerStartError, OSError) as error:
                self._last_failure = str(error)
                pause = START_BACKOFF_SECONDS[min(failures, len(START_BACKOFF_SECONDS) - 1)]
                failures += 1
                log.error("a worker did not start", reason=self._last_failure, next_attempt_seconds=pause)
                metrics.workers_ended.labels("self_test").inc()
                metrics.self_tests.labels("failed").inc()
                await asyncio.sleep(pause)
                continue
            failures = 0
            metrics.self_tests.labels("passed").inc()
            await self._while_it_lives(worker)

    def _own_options(self) -> WorkerOptions:
        """Workers that started together must not be recycled together."""
        after = math.ceil(self._options.recycle_after * random.uniform(RECYCLE_SPREAD, 1.0))
        return replace(self._options, recycle_after=after)

    async def _while_it_lives(self, worker: WorkerProcess) -> None:
        self._living.add(worker)
        self._was_full = self._was_full or len(self._living) >= self._workers
        metrics.workers.set(len(self._living))
        self._tell_isolation()
        self._idle.put_nowait(worker)
        try:
            reason = await worker.exited()
        except asyncio.CancelledError:
            await worker.end("abandoned")
            raise
        finally:
            self._living.discard(worker)
            metrics.workers.set(len(self._living))
        metrics.workers_ended.labels(reason).inc()
        if reason != "recycled":
            log.warning("a worker ended", reason=reason, pid=worker.pid)

    def _tell_isolation(self) -> None:
        in_force = self.isolation
        for layer in {layer for worker in self._living for layer in worker.hello.isolation}:
            metrics.isolation.labels(layer).set(layer in in_force)

    async def _dispatch(self) -> None:
        while True:
            job = await self._queue.next()
            metrics.queue_depth.set(len(self._queue))
            job.settle(None if job.is_needless else await self._outcome(job))

    async def _outcome(self, job: Job) -> Judgement:
        """Whatever goes wrong, the item has its answer and the next one its turn."""
        try:
            return await self._run(job.item, job.queued_at)
        except Exception as error:
            log.exception("an item could not be judged", kind=job.item.kind)
            return sandbox_error(f"it could not be judged: {type(error).__name__}: {error}")

    async def _run(self, item: VerifyItem, queued_at: float) -> Judgement:
        died: list[str] = []
        while len(died) < ATTEMPTS:
            worker = await self._idle_worker()
            begun = time.perf_counter()
            metrics.queue_seconds.observe(begun - queued_at)
            try:
                judgement = await worker.judge(item)
            except DeadlineExpiredError:
                limit = self._options.deadline(item)
                judgement = undetermined(f"judging it was stopped after {limit:g} s")
            except WorkerAbsentError:
                continue
            except WorkerDiedError as error:
                died.append(str(error))
                continue
            finally:
                self._note(item, time.perf_counter() - begun)
            if worker.is_alive:
                self._idle.put_nowait(worker)
            return judgement
        return sandbox_error(f"{len(died)} workers died over it", workers=died)

    async def _idle_worker(self) -> WorkerProcess:
        while True:
            worker = await self._idle.get()
            if worker.is_alive:
                return worker

    def _note(self, item: VerifyItem, seconds: float) -> None:
        metrics.item_seconds.labels(item.kind).observe(seconds)
        self._mean_seconds += 0.05 * (seconds - self._mean_seconds)


def _jobs(item: VerifyItem) -> list[Job]:
    loop = asyncio.get_running_loop()
    progress = Progress(item.stop_early)
    return [Job(part, loop.create_future(), place, progress) for place, part in enumerate(split(item))]
