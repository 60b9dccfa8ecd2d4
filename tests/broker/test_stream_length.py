"""What an autoscaler outside may read of the queue."""

from __future__ import annotations

from typing import Any

from potstill.broker import Broker, keys
from potstill.broker.tickets import TicketQueue
from tests.broker.messages import group, ticket


async def test_the_length_of_the_stream_is_what_is_left_to_do_and_the_lag_of_the_group_is_not_known(
    broker: Broker,
) -> None:
    queue = TicketQueue(broker, "default")
    await queue.issue([ticket(1, slot) for slot in range(5)])
    deliveries = await queue.take("w0", 5)
    for delivery in deliveries[1:]:
        await queue.complete(delivery, group(delivery.ticket))
    await queue.issue([ticket(2, slot) for slot in range(3)])
    assert await broker.redis.xlen(keys.tickets("default")) == 4  # one in progress, three that wait
    groups: Any = await broker.redis.xinfo_groups(keys.tickets("default"))
    assert groups[0]["lag"] is None
