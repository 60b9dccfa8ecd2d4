"""The stream of finished groups, from rollout workers to one job's learner."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from potstill.broker import keys
from potstill.broker.connection import BLOCK_MILLISECONDS, Broker
from potstill.contracts import wire
from potstill.contracts.ticket import Phase
from potstill.contracts.trajectory import TrajectoryGroup

CONSUMER = "learner"

_ACKNOWLEDGE = """
for i = 2, #ARGV do
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  redis.call('XDEL', KEYS[1], ARGV[i])
end
return #ARGV - 1
"""

# KEYS steps, floor, then states to forget; ARGV the new floor or ''.
_FORGET = """
for i = 3, #KEYS do
  redis.call('DEL', KEYS[i])
  redis.call('SREM', KEYS[1], KEYS[i])
end
if ARGV[1] ~= '' and tonumber(ARGV[1]) > tonumber(redis.call('GET', KEYS[2]) or '0') then
  redis.call('SET', KEYS[2], ARGV[1])
end
return #KEYS - 2
"""


@dataclass(frozen=True)
class Received:
    """A group and the entry to acknowledge it by."""

    entry: bytes
    group: TrajectoryGroup


@dataclass(frozen=True)
class StreamDepth:
    groups: int
    oldest_seconds: float


class TrajectoryStream:
    """The groups of one job."""

    def __init__(self, broker: Broker, job_id: str) -> None:
        self._broker = broker
        self._redis = broker.redis
        self._job = job_id
        self._stream = keys.trajectories(job_id)
        self._acknowledge = self._redis.register_script(_ACKNOWLEDGE)
        self._forget = self._redis.register_script(_FORGET)

    async def pending(self) -> list[Received]:
        """All that was delivered and not acknowledged, oldest first."""
        received: list[Received] = []
        after = "0"
        while batch := await self._read(after, 64, None):
            received += batch
            after = batch[-1].entry.decode()
        return received

    async def new(self, count: int = 64, *, block: int = BLOCK_MILLISECONDS) -> list[Received]:
        """Wait up to `block` milliseconds for groups that were not delivered before."""
        return await self._read(">", count, block)

    async def _read(self, after: str, count: int, block: int | None) -> list[Received]:
        entries = await self._broker.read_group(
            self._stream, keys.TRAJECTORY_GROUP, CONSUMER, after=after, count=count, block=block
        )
        return [Received(entry, wire.decode(fields[b"group"], TrajectoryGroup)) for entry, fields in entries if fields]

    async def acknowledge(self, entries: Sequence[bytes]) -> None:
        """Acknowledge and delete, in one script. Call only when the groups are safe on disk."""
        if entries:
            await self._acknowledge(keys=[self._stream], args=[keys.TRAJECTORY_GROUP, *entries])

    async def settle(self, step: int) -> None:
        """Forget the tickets of training steps up to `step`: a complete checkpoint holds them."""
        await self._forget_steps(lambda phase, s: phase == Phase.TRAIN and s <= step, floor=step)

    async def settle_eval(self, step: int) -> None:
        """Forget the tickets of one evaluation: its results are on disk."""
        await self._forget_steps(lambda phase, s: phase == Phase.EVAL and s == step, floor=None)

    async def discard(self) -> None:
        """Drop every ticket and group of a job that is over; workers notice and stop."""
        await self._forget_steps(lambda _phase, _step: True, floor=None)
        await self._redis.delete(self._stream, keys.floor(self._job))

    async def _forget_steps(self, matches: Any, floor: int | None) -> None:
        members: Any = await self._redis.smembers(keys.ticket_steps(self._job))
        names = [name.decode() for name in members if matches(*_phase_and_step(name.decode()))]
        arguments = ["" if floor is None else floor]
        await self._forget(keys=[keys.ticket_steps(self._job), keys.floor(self._job), *names], args=arguments)

    async def depth(self) -> StreamDepth:
        """How many groups wait for the learner, and the age of the oldest."""
        length = int(await self._redis.xlen(self._stream))
        oldest: Any = await self._redis.xrange(self._stream, count=1)
        age = max(0.0, time.time() - int(oldest[0][0].split(b"-")[0]) / 1000) if oldest else 0.0
        return StreamDepth(length, age)


def _phase_and_step(states_key: str) -> tuple[Phase, int]:
    *_, phase, step = states_key.split(":")
    return Phase(phase), int(step)
