"""One connection to Redis or Valkey, patient or not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Self

import redis.asyncio as redis
import redis.exceptions as errors
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff

BLOCK_MILLISECONDS = 2000
SOCKET_SECONDS = 10.0  # longer than any BLOCK, or a quiet stream would look like a dead server
FOREVER = -1
MAX_CONNECTIONS = 4096  # one for every event stream that somebody follows; the servers allow 10,000 clients

RETRYABLE: tuple[Any, ...] = (
    errors.ConnectionError,
    errors.TimeoutError,
    errors.OutOfMemoryError,
    errors.ReadOnlyError,
    OSError,
)


class BrokerError(Exception):
    """The broker refused, or holds something unexpected."""


class BrokerUnavailableError(BrokerError):
    """Redis does not answer, is full or cannot be written."""


@dataclass(frozen=True)
class ServerMemory:
    """Bytes used, and what may be used: `maxmemory`, or without one the machine's memory."""

    used_bytes: int
    limit_bytes: int


class _Client(redis.Redis):
    """redis-py, without its way of losing a cancellation.

    It writes under `asyncio.wait_for`, and before Python 3.12 that forgets a cancellation which comes while the
    write is done at once: Ctrl-C would be ignored, and a worker that was asked to end would go on.
    """

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        task = asyncio.current_task()
        await asyncio.sleep(0)  # one that was asked for already is raised here
        asked = task.cancelling() if task else 0
        reply = await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        if task and task.cancelling() > asked:
            raise asyncio.CancelledError
        return reply


class Broker:
    """A connection pool. Workers and learners are patient: a queue server that stops makes them wait, not fail."""

    def __init__(self, client: redis.Redis) -> None:
        self.redis = client

    @classmethod
    def connect(cls, url: str, *, patient: bool) -> Self:
        """Connect lazily. With `patient`, every call waits for the server to come back instead of raising."""
        retry = Retry(ExponentialWithJitterBackoff(base=0.05, cap=2.0), FOREVER if patient else 1, RETRYABLE)
        client = _Client.from_url(
            url,
            retry=retry,
            retry_on_error=list(RETRYABLE),
            socket_timeout=SOCKET_SECONDS,
            socket_connect_timeout=5.0,
            health_check_interval=15,
            max_connections=MAX_CONNECTIONS,
            decode_responses=False,
        )
        return cls(client)

    async def ping(self) -> None:
        """Raises BrokerUnavailableError when the server does not answer."""
        try:
            await self.redis.ping()
        except RETRYABLE as error:
            raise BrokerUnavailableError(f"Redis does not answer: {error}") from error

    async def memory(self) -> ServerMemory:
        """How full the server is."""
        info: Any = await self.redis.info("memory")
        return ServerMemory(int(info["used_memory"]), int(info["maxmemory"]) or int(info["total_system_memory"]))

    async def close(self) -> None:
        await self.redis.aclose()

    async def ensure_group(self, stream: str, group: str) -> None:
        """Create the consumer group from the stream's very beginning, if it is not there."""
        try:
            await self.redis.xgroup_create(stream, group, id="0", mkstream=True)
        except errors.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def read_group(
        self, stream: str, group: str, consumer: str, *, after: str, count: int, block: int | None
    ) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """XREADGROUP that makes the group when it is not there (a new stream, or a server that lost its data)."""
        while True:
            try:
                reply: Any = await self.redis.xreadgroup(group, consumer, {stream: after}, count=count, block=block)
            except errors.ResponseError as error:
                if not str(error).startswith("NOGROUP"):
                    raise
                await self.ensure_group(stream, group)
                continue
            return stream_entries(reply)


def stream_entries(reply: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    if not reply:
        return []
    (batch,) = reply.values() if isinstance(reply, dict) else (reply[0][1],)
    if batch and isinstance(batch[0], list) and batch[0] and isinstance(batch[0][0], tuple | list):
        (batch,) = batch
    return [(entry, fields or {}) for entry, fields in batch]
