"""The ticket queue: issued once, leased to workers, completed once."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from potstill.broker import keys
from potstill.broker.connection import BLOCK_MILLISECONDS, Broker
from potstill.contracts import wire
from potstill.contracts.ticket import Phase, Ticket, TicketId
from potstill.contracts.trajectory import TrajectoryGroup

# KEYS stream, states, steps, floor; ARGV phase, step, then slot and payload in turn. Known slots are skipped.
_ISSUE = """
if ARGV[1] == 'train' and tonumber(ARGV[2]) <= tonumber(redis.call('GET', KEYS[4]) or '0') then return 0 end
local issued = 0
for i = 3, #ARGV, 2 do
  if redis.call('HSETNX', KEYS[2], ARGV[i], 'open') == 1 then
    redis.call('XADD', KEYS[1], '*', 'ticket', ARGV[i + 1])
    issued = issued + 1
  end
end
redis.call('SADD', KEYS[3], KEYS[2])
return issued
"""

# KEYS tickets, states, trajectories; ARGV group, entry, slot, payload. The ticket goes either way.
_COMPLETE = """
local first = redis.call('HGET', KEYS[2], ARGV[3]) == 'open'
if first then
  redis.call('HSET', KEYS[2], ARGV[3], 'done')
  redis.call('XADD', KEYS[3], '*', 'group', ARGV[4])
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
return first and 1 or 0
"""

_DROP = """
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
return redis.call('XDEL', KEYS[1], ARGV[2])
"""

# KEYS tickets; ARGV group, consumer, entry. Renews only what this consumer still holds.
_RENEW = """
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
if #pending == 0 or pending[1][2] ~= ARGV[2] then return 0 end
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], 'JUSTID')
return 1
"""


@dataclass(frozen=True)
class Delivery:
    """One delivery of a ticket to one worker."""

    entry: bytes
    ticket: Ticket
    attempt: int  # 1 for the first delivery


@dataclass(frozen=True)
class QueueDepth:
    waiting: int
    in_progress: int
    oldest_seconds: float


class TicketQueue:
    """The tickets of one lane."""

    def __init__(self, broker: Broker, lane: str) -> None:
        self._broker = broker
        self._redis = broker.redis
        self._stream = keys.tickets(lane)
        self._issue = self._redis.register_script(_ISSUE)
        self._complete = self._redis.register_script(_COMPLETE)
        self._drop = self._redis.register_script(_DROP)
        self._renew = self._redis.register_script(_RENEW)

    async def issue(self, tickets: Sequence[Ticket]) -> int:
        """Put tickets in the queue; those already issued, done, or of a settled step are skipped. Returns how many."""
        by_step: dict[tuple[str, Phase, int], list[Ticket]] = defaultdict(list)
        for ticket in tickets:
            by_step[(ticket.id.job, ticket.id.phase, ticket.id.step)].append(ticket)
        issued = 0
        for (job_id, phase, step), group in by_step.items():
            names = [
                self._stream,
                keys.step_states(job_id, phase, step),
                keys.ticket_steps(job_id),
                keys.floor(job_id),
            ]
            arguments: list[Any] = [str(phase), step]
            for ticket in group:
                arguments += [ticket.id.slot, wire.encode(ticket)]
            issued += int(await self._issue(keys=names, args=arguments))
        return issued

    async def recover(self, worker: str, count: int) -> list[Delivery]:
        """What was delivered to a worker of this name before it restarted."""
        return await self._read(worker, "0", count, None)

    async def take(self, worker: str, count: int, *, block: int = BLOCK_MILLISECONDS) -> list[Delivery]:
        """Wait up to `block` milliseconds for new tickets."""
        return await self._read(worker, ">", count, block)

    async def _read(self, worker: str, after: str, count: int, block: int | None) -> list[Delivery]:
        entries = await self._broker.read_group(
            self._stream, keys.TICKET_GROUP, worker, after=after, count=count, block=block
        )
        known = [(entry, fields) for entry, fields in entries if fields]
        if after == ">":
            return [Delivery(entry, wire.decode(fields[b"ticket"], Ticket), 1) for entry, fields in known]
        return [await self._delivery(entry, fields) for entry, fields in known]

    async def claim_idle(self, worker: str, lease_seconds: float, count: int) -> list[Delivery]:
        """Take over tickets whose worker has not renewed them for `lease_seconds`."""
        await self._broker.ensure_group(self._stream, keys.TICKET_GROUP)
        reply: Any = await self._redis.xautoclaim(
            self._stream, keys.TICKET_GROUP, worker, int(lease_seconds * 1000), start_id="0-0", count=count
        )
        return [await self._delivery(entry, fields) for entry, fields in reply[1] if fields]

    async def _delivery(self, entry: bytes, fields: dict[bytes, bytes]) -> Delivery:
        pending: Any = await self._redis.xpending_range(
            self._stream, keys.TICKET_GROUP, min=entry.decode(), max=entry.decode(), count=1
        )
        attempt = int(pending[0]["times_delivered"]) if pending else 1
        return Delivery(entry, wire.decode(fields[b"ticket"], Ticket), attempt)

    async def renew(self, worker: str, delivery: Delivery) -> bool:
        """Extend the lease. False when another worker has taken the ticket over."""
        return bool(await self._renew(keys=[self._stream], args=[keys.TICKET_GROUP, worker, delivery.entry]))

    async def is_open(self, ticket: TicketId) -> bool:
        """Whether anybody still wants this ticket: not done elsewhere, and its job not over."""
        return bool(await self._redis.hget(keys.ticket_states(ticket), str(ticket.slot)) == b"open")

    async def complete(self, delivery: Delivery, group: TrajectoryGroup) -> bool:
        """Hand in the group and acknowledge the ticket, atomically. False when somebody had done so before."""
        ticket = delivery.ticket.id
        names = [self._stream, keys.ticket_states(ticket), keys.trajectories(ticket.job)]
        arguments: list[Any] = [keys.TICKET_GROUP, delivery.entry, ticket.slot, wire.encode(group)]
        return bool(await self._complete(keys=names, args=arguments))

    async def drop(self, delivery: Delivery) -> None:
        """Acknowledge a ticket that nobody wants any more."""
        await self._drop(keys=[self._stream], args=[keys.TICKET_GROUP, delivery.entry])

    async def depth(self) -> QueueDepth:
        """How much waits and how old the oldest ticket is."""
        await self._broker.ensure_group(self._stream, keys.TICKET_GROUP)
        length = int(await self._redis.xlen(self._stream))
        summary: Any = await self._redis.xpending(self._stream, keys.TICKET_GROUP)
        oldest: Any = await self._redis.xrange(self._stream, count=1)
        age = max(0.0, time.time() - int(oldest[0][0].split(b"-")[0]) / 1000) if oldest else 0.0
        in_progress = int(summary["pending"])
        return QueueDepth(max(0, length - in_progress), in_progress, age)
