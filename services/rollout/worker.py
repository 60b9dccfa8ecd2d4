"""Takes tickets under a lease, fulfils many at once, and hands each in exactly once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from potstill.broker import Broker
from potstill.broker.jobs import JobNotFoundError, JobStore
from potstill.broker.tickets import Delivery, TicketQueue
from potstill.contracts.generation import Sampling
from potstill.contracts.job import JobSpec
from potstill.contracts.ticket import Ticket
from potstill.contracts.trajectory import TrajectoryGroup
from potstill.service.errors import UnavailableError
from potstill.service.logs import get_logger
from potstill.service.peers import PeerRefusedError
from services.rollout import metrics
from services.rollout.errors import Reason, TicketError, TicketGoneError
from services.rollout.patience import patiently
from services.rollout.rendering import Renderer
from services.rollout.rollout import Peers, roll_out, tombstone
from services.rollout.settings import RolloutSettings

WATCH_SECONDS = 1.0
RETRY_SECONDS = 0.5
KEPT_RENDERERS = 8
log = get_logger("rollout")


@dataclass
class InProgress:
    """A delivery and the task that works on it."""

    delivery: Delivery
    task: asyncio.Task[None]
    is_handed_in: bool = False  # then its ticket is closed by ourselves


class Worker:
    """One rollout process."""

    def __init__(self, settings: RolloutSettings, broker: Broker, peers: Peers) -> None:
        self.settings = settings
        self.name = settings.worker_name
        self.peers = peers
        self.queue = TicketQueue(broker, settings.lane)
        self.jobs = JobStore(broker)
        self.stopping = asyncio.Event()
        self._free = asyncio.Semaphore(settings.rollout_concurrency)
        self._active: dict[bytes, InProgress] = {}
        self._renderers: dict[str, Renderer] = {}
        self._loading = asyncio.Lock()
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Work until `stopping` is set; then finish what is in progress."""
        try:
            async with asyncio.TaskGroup() as tasks:
                keepers = [tasks.create_task(self._keep_leases()), tasks.create_task(self._watch_queue())]
                await self._take_tickets()
                await self._drain()
                for keeper in keepers:
                    keeper.cancel()
                for renderer in self._renderers.values():
                    await renderer.close()
        except BaseException as error:
            self._failure = error
            raise

    async def check(self) -> None:
        """Raises UnavailableError when the worker's loop has ended."""
        if self._failure is not None or self.stopping.is_set():
            raise UnavailableError(f"the worker takes no more tickets: {self._failure or 'it is stopping'}")

    async def _take_tickets(self) -> None:
        for delivery in await self.queue.recover(self.name, self.settings.rollout_concurrency):
            await self._start(delivery)
        while not self.stopping.is_set():
            await self._free.acquire()
            self._free.release()
            room = self.settings.rollout_concurrency - len(self._active)
            for delivery in await self.queue.take(self.name, max(1, room)):
                await self._start(delivery)

    async def _start(self, delivery: Delivery) -> None:
        if delivery.entry in self._active:
            return
        await self._free.acquire()
        task = asyncio.create_task(self._handle(delivery))
        self._active[delivery.entry] = InProgress(delivery, task)
        metrics.in_progress.set(len(self._active))
        task.add_done_callback(lambda done: self._finished(delivery, done))

    def _finished(self, delivery: Delivery, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            # The lease runs out, the ticket is delivered again, and after enough attempts it is given up.
            log.error("a ticket failed", ticket=str(delivery.ticket.id), exc_info=task.exception())
        self._active.pop(delivery.entry, None)
        self._free.release()
        metrics.in_progress.set(len(self._active))

    async def _drain(self) -> None:
        tasks = [item.task for item in self._active.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.0, self.settings.drain_seconds - 1))
        for task in tasks:
            task.cancel()

    async def _handle(self, delivery: Delivery) -> None:
        ticket = delivery.ticket
        phase = str(ticket.id.phase)
        try:
            if not await self.queue.is_open(ticket.id):
                raise TicketGoneError
            group = await self._fulfil(delivery)
        except (TicketGoneError, JobNotFoundError):
            await self.queue.drop(delivery)
            metrics.tickets.labels(phase, "dropped").inc()
            return
        self._active[delivery.entry].is_handed_in = True
        first = await self.queue.complete(delivery, group)
        _count(group, phase, "duplicate" if not first else "tombstone" if group.tombstone else "completed")

    async def _fulfil(self, delivery: Delivery) -> TrajectoryGroup:
        """A group, or a tombstone with the reason."""
        ticket, limit = delivery.ticket, self.settings.rollout_max_attempts
        if delivery.attempt > limit:
            return self._give_up(ticket, Reason.UNANSWERED, f"delivered {delivery.attempt} times without an answer")
        reason = ""
        for attempt in range(limit):
            try:
                renderer = await self._renderer(ticket.id.job)
                ready = await self._with_stop_tokens(ticket)
                return await roll_out(ready, renderer, self.peers, self.name)
            except TicketError as error:
                return self._give_up(ticket, error.reason, str(error))
            except PeerRefusedError as error:
                reason = str(error)
            log.warning("a service refused a ticket", ticket=str(ticket.id), attempt=attempt + 1, reason=reason)
            await asyncio.sleep(RETRY_SECONDS * (attempt + 1))
        return self._give_up(ticket, Reason.REFUSED, f"refused {limit} times, last: {reason}")

    def _give_up(self, ticket: Ticket, reason: Reason, told: str) -> TrajectoryGroup:
        metrics.tombstones.labels(str(ticket.id.phase), reason).inc()
        log.warning("a ticket is given up", ticket=str(ticket.id), reason=told)
        return tombstone(ticket, told, self.name)

    async def _renderer(self, job_id: str) -> Renderer:
        async with self._loading:
            if job_id not in self._renderers:
                record = await self.jobs.get(job_id)
                spec = JobSpec.model_validate(record.spec)
                renderer = await asyncio.to_thread(Renderer, spec)
                while len(self._renderers) >= KEPT_RENDERERS:
                    await self._renderers.pop(next(iter(self._renderers))).close()
                self._renderers[job_id] = renderer
            return self._renderers[job_id]

    async def _with_stop_tokens(self, ticket: Ticket) -> Ticket:
        """Where the ticket names no stop tokens, the student's own end-of-sequence ids."""
        if ticket.sampling.stop_token_ids:
            return ticket
        known = await patiently("student", self.peers.student.capabilities)
        stops = known.model.eos_token_ids if known.model else ()
        sampling: Sampling = msgspec.structs.replace(ticket.sampling, stop_token_ids=stops)
        return msgspec.structs.replace(ticket, sampling=sampling)

    async def _keep_leases(self) -> None:
        """Renew what is in progress, stop what was taken over or is no longer wanted, take over what others left."""
        renewed = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now = asyncio.get_running_loop().time()
            due = now - renewed >= self.settings.rollout_lease_seconds / 3
            for item in list(self._active.values()):
                wanted = await self.queue.is_open(item.delivery.ticket.id)
                held = not due or await self.queue.renew(self.name, item.delivery)
                if not ((wanted and held) or item.is_handed_in):
                    await self._abort(item)
            if not due:
                continue
            renewed = now
            room = self.settings.rollout_concurrency - len(self._active)
            if room > 0 and not self.stopping.is_set():
                for idle in await self.queue.claim_idle(self.name, self.settings.rollout_lease_seconds, room):
                    await self._start(idle)

    async def _abort(self, item: InProgress) -> None:
        item.task.cancel()
        await asyncio.wait({item.task})
        if not await self.queue.is_open(item.delivery.ticket.id):
            await self.queue.drop(item.delivery)
        metrics.tickets.labels(str(item.delivery.ticket.id.phase), "aborted").inc()

    async def _watch_queue(self) -> None:
        while True:
            depth = await self.queue.depth()
            metrics.queue_tickets.labels("waiting").set(depth.waiting)
            metrics.queue_tickets.labels("in_progress").set(depth.in_progress)
            metrics.queue_oldest_seconds.set(depth.oldest_seconds)
            await asyncio.sleep(WATCH_SECONDS)


def _count(group: TrajectoryGroup, phase: str, outcome: str) -> None:
    metrics.tickets.labels(phase, outcome).inc()
    if outcome != "completed":
        return
    for name, seconds in msgspec.structs.asdict(group.timings).items():
        metrics.phase_seconds.labels(name).observe(seconds)
    metrics.samples.labels(phase).inc(len(group.trajectories))
    metrics.tokens.labels(phase, "prompt").inc(len(group.prompt_token_ids))
    for trajectory in group.trajectories:
        metrics.tokens.labels(phase, "response").inc(len(trajectory.token_ids))
        metrics.verdicts.labels(phase, str(trajectory.verdict)).inc()
        if trajectory.teacher_logprobs is not None:
            metrics.tokens.labels(phase, "scored").inc(len(trajectory.teacher_logprobs))
        if trajectory.reference_logprobs is not None:
            metrics.tokens.labels(phase, "reference").inc(len(trajectory.reference_logprobs))
