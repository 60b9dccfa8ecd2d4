from __future__ import annotations

import asyncio

import numpy as np

from potstill.broker import Broker
from potstill.broker.tickets import TicketQueue
from potstill.broker.trajectories import TrajectoryStream
from potstill.contracts.ticket import Phase
from tests.broker.conftest import QueueServer
from tests.broker.messages import group, ticket


async def test_a_ticket_issued_twice_is_queued_once(broker: Broker) -> None:
    queue = TicketQueue(broker, "default")
    assert await queue.issue([ticket(1, 0), ticket(1, 1)]) == 2
    assert await queue.issue([ticket(1, 0), ticket(1, 1), ticket(1, 2)]) == 1
    assert len(await queue.take("w0", 10)) == 3


async def test_a_group_survives_the_way_through_the_broker(broker: Broker) -> None:
    queue, stream = TicketQueue(broker, "default"), TrajectoryStream(broker, "job_a")
    await queue.issue([ticket()])
    (delivery,) = await queue.take("w0", 1)
    sent = group(delivery.ticket)
    assert await queue.complete(delivery, sent)
    (received,) = await stream.new()
    got = received.group
    assert got.ticket == sent.ticket
    assert got.trajectories[0].teacher_logprobs is not None
    np.testing.assert_array_equal(got.trajectories[0].teacher_logprobs, sent.trajectories[0].teacher_logprobs)
    assert got.trajectories[0].token_ids.dtype == np.int32


async def test_a_ticket_completed_by_two_workers_gives_one_group(broker: Broker) -> None:
    queue, stream = TicketQueue(broker, "default"), TrajectoryStream(broker, "job_a")
    await queue.issue([ticket()])
    (first,) = await queue.take("w0", 1)
    await asyncio.sleep(0.05)
    (second,) = await queue.claim_idle("w1", 0.02, 10)
    assert second.attempt == 2
    assert not await queue.renew("w0", first), "the first worker has lost the ticket"
    assert await queue.renew("w1", second)
    assert await queue.complete(second, group(second.ticket, worker="w1"))
    assert not await queue.complete(first, group(first.ticket, worker="w0"))
    assert [r.group.worker for r in await stream.new()] == ["w1"]
    assert (await queue.depth()).in_progress == 0


async def test_a_renewed_ticket_is_not_claimed(broker: Broker) -> None:
    queue = TicketQueue(broker, "default")
    await queue.issue([ticket()])
    (delivery,) = await queue.take("w0", 1)
    for _ in range(5):
        await asyncio.sleep(0.03)
        assert await queue.renew("w0", delivery)
        assert await queue.claim_idle("w1", 0.06, 10) == []


async def test_a_restarted_worker_finds_what_it_held(broker: Broker) -> None:
    queue = TicketQueue(broker, "default")
    await queue.issue([ticket(1, 0), ticket(1, 1)])
    await queue.take("w0", 1)
    recovered = await queue.recover("w0", 10)
    assert [d.ticket.id.slot for d in recovered] == [0]
    assert recovered[0].attempt == 2


async def test_a_settled_step_takes_no_tickets_and_no_groups(broker: Broker) -> None:
    queue, stream = TicketQueue(broker, "default"), TrajectoryStream(broker, "job_a")
    await queue.issue([ticket(1, 0)])
    (delivery,) = await queue.take("w0", 1)
    await stream.settle(1)
    assert not await queue.is_open(delivery.ticket.id)
    assert not await queue.complete(delivery, group(delivery.ticket))
    assert await queue.issue([ticket(1, 0)]) == 0
    assert await queue.issue([ticket(2, 0), ticket(1, 0, phase=Phase.EVAL)]) == 2


async def test_groups_stay_pending_until_acknowledged(broker: Broker) -> None:
    queue, stream = TicketQueue(broker, "default"), TrajectoryStream(broker, "job_a")
    await queue.issue([ticket(1, slot) for slot in range(70)])
    for delivery in await queue.take("w0", 100):
        await queue.complete(delivery, group(delivery.ticket))
    seen = await stream.new(count=100)
    assert len(seen) == 70
    assert [r.entry for r in await stream.pending()] == [r.entry for r in seen]
    await stream.acknowledge([r.entry for r in seen[:69]])
    assert [r.group.ticket.slot for r in await stream.pending()] == [69]
    assert (await stream.depth()).groups == 1


async def test_a_cancelled_job_leaves_nothing(broker: Broker) -> None:
    queue, stream = TicketQueue(broker, "default"), TrajectoryStream(broker, "job_a")
    await queue.issue([ticket(1, 0), ticket(1, 1), ticket(2, 0, phase=Phase.EVAL)])
    first, *others = await queue.take("w0", 10)
    await queue.complete(first, group(first.ticket))
    await stream.discard()
    for delivery in others:
        assert not await queue.is_open(delivery.ticket.id)
        await queue.drop(delivery)
    left = [key for key in await broker.redis.keys("*") if b"lane" not in key]
    assert left == []
    assert (await queue.depth()).waiting == 0


async def test_everything_survives_a_killed_server(server: QueueServer, broker: Broker) -> None:
    queue, stream = TicketQueue(broker, "default"), TrajectoryStream(broker, "job_a")
    await queue.issue([ticket(1, slot) for slot in range(4)])
    taken = await queue.take("w0", 2)
    await queue.complete(taken[0], group(taken[0].ticket))
    server.kill()
    waiting = asyncio.create_task(queue.complete(taken[1], group(taken[1].ticket)))
    await asyncio.sleep(0.3)
    assert not waiting.done(), "a patient client waits for the server"
    server.start()
    assert await waiting
    assert sorted(r.group.ticket.slot for r in await stream.new()) == [0, 1]
    assert [d.ticket.id.slot for d in await queue.take("w0", 10)] == [2, 3]
