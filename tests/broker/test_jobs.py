from __future__ import annotations

import asyncio

import pytest

from potstill.broker import Broker
from potstill.broker.jobs import (
    Command,
    IdempotencyConflictError,
    IllegalTransitionError,
    JobNotFoundError,
    JobStore,
    LeaseLostError,
)
from potstill.broker.tickets import TicketQueue
from potstill.contracts.job import Event
from potstill.contracts.state import JobState
from tests.broker.messages import ticket

SPEC = {"name": "a"}


async def claimed(jobs: JobStore, owner: str = "learner-0", incarnation: str = "1", seconds: float = 30) -> str:
    await jobs.create("job_a", SPEC)
    record = await jobs.claim("default", owner, incarnation, seconds)
    assert record is not None
    return record.id


async def test_jobs_are_listed_newest_first_by_pages(broker: Broker) -> None:
    jobs = JobStore(broker)
    for number in range(5):
        await jobs.create(f"job_{number}", SPEC)
    first = await jobs.page(after=None, limit=3)
    assert [record.id for record in first] == ["job_4", "job_3", "job_2"]
    assert [record.id for record in await jobs.page(after="job_2", limit=3)] == ["job_1", "job_0"]
    with pytest.raises(JobNotFoundError):
        await jobs.page(after="job_9", limit=3)


async def test_an_idempotency_key_gives_the_same_job(broker: Broker) -> None:
    jobs = JobStore(broker)
    assert await jobs.create("job_a", SPEC, key="k", digest="d1") == "job_a"
    assert await jobs.create("job_b", SPEC, key="k", digest="d1") == "job_a"
    with pytest.raises(IdempotencyConflictError):
        await jobs.create("job_c", SPEC, key="k", digest="d2")
    assert [record.id for record in await jobs.page(after=None, limit=9)] == ["job_a"]


async def test_one_job_goes_to_one_lane(broker: Broker) -> None:
    jobs = JobStore(broker)
    await jobs.create("job_a", SPEC)
    claims = await asyncio.gather(*(jobs.claim("default", f"learner-{i}", "1", 30) for i in range(8)))
    assert len([record for record in claims if record]) == 1


async def test_a_job_whose_lane_died_is_queued_again(broker: Broker) -> None:
    jobs = JobStore(broker)
    job_id = await claimed(jobs, seconds=0.05)
    await jobs.advance(job_id, "learner-0", "1", state=JobState.RUNNING)
    await asyncio.sleep(0.1)
    assert (await jobs.get(job_id)).state is JobState.QUEUED
    with pytest.raises(LeaseLostError):
        await jobs.renew(job_id, "learner-0", "1", 30)
    taken = await jobs.claim("default", "learner-1", "1", 30)
    assert taken is not None
    assert taken.state is JobState.STARTING
    with pytest.raises(LeaseLostError):
        await jobs.advance(job_id, "learner-0", "1", step=9)


async def test_a_successor_of_the_same_name_takes_over_at_once(broker: Broker) -> None:
    jobs = JobStore(broker)
    job_id = await claimed(jobs)
    assert await jobs.claim("default", "learner-1", "1", 30) is None
    taken = await jobs.claim("default", "learner-0", "2", 30)
    assert taken is not None
    assert taken.id == job_id
    with pytest.raises(LeaseLostError):
        await jobs.renew(job_id, "learner-0", "1", 30)


async def test_commands_reach_the_lane_and_are_idempotent(broker: Broker) -> None:
    jobs = JobStore(broker)
    job_id = await claimed(jobs)
    await jobs.advance(job_id, "learner-0", "1", state=JobState.RUNNING)
    assert await jobs.command(job_id, "pause") is JobState.RUNNING
    assert await jobs.command(job_id, "pause") is JobState.RUNNING
    assert await jobs.renew(job_id, "learner-0", "1", 30) is Command.PAUSE
    await jobs.advance(job_id, "learner-0", "1", state=JobState.PAUSED, release=True)
    assert await jobs.command(job_id, "pause") is JobState.PAUSED
    assert await jobs.claim("default", "learner-1", "1", 30) is None
    assert await jobs.command(job_id, "resume") is JobState.QUEUED
    assert await jobs.command(job_id, "resume") is JobState.QUEUED
    assert await jobs.claim("default", "learner-1", "1", 30) is not None


async def test_cancel_needs_no_lane_when_none_holds_the_job(broker: Broker) -> None:
    jobs = JobStore(broker)
    await jobs.create("job_a", SPEC)
    assert await jobs.command("job_a", "cancel") is JobState.CANCELLED
    assert await jobs.command("job_a", "cancel") is JobState.CANCELLED
    assert (await jobs.get("job_a")).finished_at is not None
    with pytest.raises(IllegalTransitionError):
        await jobs.command("job_a", "resume")
    assert await jobs.claim("default", "learner-0", "1", 30) is None


async def test_cancelling_a_paused_job_leaves_no_tickets(broker: Broker) -> None:
    jobs = JobStore(broker)
    await jobs.create("job_a", SPEC)
    await jobs.command("job_a", "pause")
    queue = TicketQueue(broker, "default")
    await queue.issue([ticket(1, 0)])
    assert await jobs.command("job_a", "cancel") is JobState.CANCELLED
    (delivery,) = await queue.take("w0", 1)
    assert not await queue.is_open(delivery.ticket.id)


async def test_a_cancel_outlives_the_lane_that_should_obey_it(broker: Broker) -> None:
    jobs = JobStore(broker)
    job_id = await claimed(jobs, seconds=0.05)
    await jobs.command(job_id, "cancel")
    await asyncio.sleep(0.1)
    assert (await jobs.get(job_id)).state is JobState.CANCELLED
    assert await jobs.claim("default", "learner-1", "1", 30) is None
    assert (await jobs.get(job_id)).state is JobState.CANCELLED


async def test_a_finished_job_obeys_nobody(broker: Broker) -> None:
    jobs = JobStore(broker)
    job_id = await claimed(jobs)
    await jobs.advance(job_id, "learner-0", "1", state=JobState.RUNNING)
    await jobs.advance(job_id, "learner-0", "1", state=JobState.SUCCEEDED, release=True)
    for verb in ("cancel", "pause", "resume"):
        with pytest.raises(IllegalTransitionError):
            await jobs.command(job_id, verb)
    with pytest.raises(JobNotFoundError):
        await jobs.command("job_none", "cancel")


async def test_events_are_read_from_a_cursor_and_followed(broker: Broker) -> None:
    jobs = JobStore(broker)
    ids = [
        await jobs.add_event("job_a", Event(id="", created_at=float(n), message=f"m{n}", data={"n": n}))
        for n in range(4)
    ]
    assert [e.message for e in await jobs.events("job_a", after=ids[1], limit=1)] == ["m2"]
    followed = []
    async for event in jobs.follow("job_a", after=ids[1]):
        if event is None:
            break
        followed.append((event.id, event.data["n"]))
    assert followed == [(ids[2], 2), (ids[3], 3)]


async def test_metrics_are_read_from_a_cursor(broker: Broker) -> None:
    jobs = JobStore(broker)
    for step in (1, 2, 3):
        await jobs.add_metrics("job_a", step, {"step": step, "loss": 0.5})
    first = await jobs.metrics("job_a", after=None, limit=2)
    rest = await jobs.metrics("job_a", after=first[-1][0], limit=9)
    assert [values["step"] for _, values in first + rest] == [1, 2, 3]
