from __future__ import annotations

import asyncio

import pytest

from potstill.broker import Broker
from tests.broker.conftest import QueueServer


async def cancelled_from_within(broker: Broker) -> None:
    """Asked to end between two commands, as by Ctrl-C in the middle of other work."""
    await broker.ping()
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await broker.ping()


async def test_a_cancellation_before_a_command_is_not_lost(broker: Broker) -> None:
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(cancelled_from_within(broker))


@pytest.mark.parametrize("rounds", range(12))
async def test_a_cancellation_in_a_command_is_not_lost(broker: Broker, rounds: int) -> None:
    """Wherever in the command it comes: after any number of rounds of the event loop."""
    await broker.ping()

    async def work() -> None:
        for _ in range(100):
            await broker.ping()

    task = asyncio.create_task(work())
    for _ in range(rounds):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_two_hundred_followers_of_a_stream_leave_room_for_others(server: QueueServer) -> None:
    """Each of them waits on a connection of its own, as people at the gateway do."""
    impatient = Broker.connect(server.url, patient=False)
    following = [asyncio.create_task(impatient.redis.xread({"quiet": "$"}, block=2000)) for _ in range(200)]
    await asyncio.sleep(0.5)
    await impatient.ping()
    assert not any(task.done() for task in following)
    await asyncio.gather(*following)
    await impatient.close()
