"""How many trajectory groups pass the broker, and how fast? `python -m benchmarks.queue`

A worker process and a learner process on one Valkey, by the very calls that the services make: issue, take, ask whether
it is wanted, hand in, read, acknowledge. Beside it, in turn, the same bytes by bare XADD and XREADGROUP: the least that
a stream costs. Latency is from the moment a group is due to be handed in to the moment the learner has decoded it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.figures import Figure, alone, beside, publish
from potstill.broker import Broker
from potstill.broker.tickets import Delivery, TicketQueue
from potstill.broker.trajectories import TrajectoryStream
from potstill.contracts import wire
from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.generation import FinishReason, Sampling
from potstill.contracts.problem import Message, Problem
from potstill.contracts.ticket import Phase, Ticket, TicketId
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup
from potstill.contracts.verification import Verdict
from potstill.local.stack import free_ports
from potstill.local.supervisor import RestartPolicy, Supervisor
from potstill.local.valkey import EmbeddedValkey

COMMAND = "python -m benchmarks.queue"
JOB, LANE, WORKER = "job_bench", "bench", "worker"
BARE_STREAM, BARE_GROUP = "bench:bare", "bench"
SAMPLES, TOKENS, PROMPT = 4, 512, 64
STEP_GROUPS, STEPS_AHEAD = 64, 4
CONCURRENCY = 32  # groups that a worker hands in at a time
HALF_AIM = 1000.0  # groups a second at which latency is measured


def example_group() -> TrajectoryGroup:
    """4 samples of 512 tokens with behaviour and teacher values, and text as long as such tokens decode to."""
    rng = np.random.default_rng(0)

    def sample() -> Trajectory:
        return Trajectory(
            token_ids=TokenIds.of(rng.integers(0, 49152, TOKENS)),
            behaviour_logprobs=LogProbs.of(-rng.exponential(1.0, TOKENS)),
            finish_reason=FinishReason.STOP,
            policy_version=1,
            text="word " * int(TOKENS * 0.8),
            verdict=Verdict.ACCEPTED,
            score=1.0,
            teacher_logprobs=LogProbs.of(-rng.exponential(1.0, TOKENS)),
        )

    return TrajectoryGroup(
        ticket=TicketId(JOB, Phase.TRAIN, 1, 0),
        problem_id="p",
        teacher="maths",
        prompt_token_ids=TokenIds.of(rng.integers(0, 49152, PROMPT)),
        trajectories=tuple(sample() for _ in range(SAMPLES)),
        issued_at=0.0,
        completed_at=0.0,
        worker=WORKER,
    )


GROUP = example_group()


def tickets(step: int) -> list[Ticket]:
    problem = Problem(id="p", prompt=(Message("user", "What is 2 + 2?"),), reference="4")
    return [
        Ticket(TicketId(JOB, Phase.TRAIN, step, slot), problem, SAMPLES, slot, None, Sampling(), "maths", time.time())
        for slot in range(STEP_GROUPS)
    ]


async def work(broker: Broker, rate: float | None) -> None:
    """Hand in groups until killed: as fast as it goes, or `rate` a second whatever happens (an open loop)."""
    queue = TicketQueue(broker, LANE)

    async def hand_in(delivery: Delivery, due: float) -> None:
        if await queue.is_open(delivery.ticket.id):
            group = msgspec.structs.replace(GROUP, ticket=delivery.ticket.id, completed_at=due)
            await queue.complete(delivery, group)

    async def deliveries(count: int) -> AsyncIterator[Delivery]:
        while True:
            for delivery in await queue.take(WORKER, count):
                yield delivery

    await _hand_in(deliveries(CONCURRENCY), hand_in, rate)


async def bare_work(broker: Broker, rate: float | None) -> None:
    async def hand_in(_: int, due: float) -> None:
        group = msgspec.structs.replace(GROUP, completed_at=due)
        await broker.redis.xadd(BARE_STREAM, {"group": wire.encode(group)})

    async def numbers() -> AsyncIterator[int]:
        while True:
            yield 0

    await _hand_in(numbers(), hand_in, rate)


async def _hand_in(source: AsyncIterator[Any], hand_in: Callable[..., Awaitable[None]], rate: float | None) -> None:
    room, tasks = asyncio.Semaphore(CONCURRENCY), set()

    async def one(item: Any, due: float) -> None:
        try:
            await hand_in(item, due)
        finally:
            room.release()

    next_due = time.time()
    async for item in source:
        next_due = next_due + 1 / rate if rate else time.time()
        await asyncio.sleep(max(0.0, next_due - time.time()))
        await room.acquire()
        task = asyncio.create_task(one(item, next_due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def learn(broker: Broker, seconds: float) -> list[tuple[float, float]]:
    """(when, latency) of every group read, once warm."""
    queue, stream = TicketQueue(broker, LANE), TrajectoryStream(broker, JOB)
    step = received = 0
    for step in range(1, STEPS_AHEAD + 1):
        await queue.issue(tickets(step))

    async def read() -> list[TrajectoryGroup]:
        nonlocal step, received
        batch = await stream.new()
        await stream.acknowledge([each.entry for each in batch])
        received += len(batch)
        while step - received // STEP_GROUPS < STEPS_AHEAD:
            step += 1
            await queue.issue(tickets(step))
            await stream.settle(step - 2 * STEPS_AHEAD)
        return [each.group for each in batch]

    return await _timed(read, seconds)


async def bare_learn(broker: Broker, seconds: float) -> list[tuple[float, float]]:
    async def read() -> list[TrajectoryGroup]:
        batch = await broker.read_group(BARE_STREAM, BARE_GROUP, "learner", after=">", count=64, block=2000)
        entries = [entry for entry, _ in batch]
        if entries:
            async with broker.redis.pipeline(transaction=False) as pipe:
                pipe.xack(BARE_STREAM, BARE_GROUP, *entries)
                pipe.xdel(BARE_STREAM, *entries)
                await pipe.execute()
        return [wire.decode(fields[b"group"], TrajectoryGroup) for _, fields in batch]

    return await _timed(read, seconds)


async def _timed(read: Callable[[], Awaitable[list[TrajectoryGroup]]], seconds: float) -> list[tuple[float, float]]:
    while not await read():
        pass
    begun, seen = time.time(), []
    while time.time() - begun < seconds + 1.0:
        groups = await read()
        now = time.time()
        seen += [(now - begun, now - group.completed_at) for group in groups]
    return [(at, latency) for at, latency in seen if at > 1.0]  # the first second warms up


def run(url: str, path: str, seconds: float, rate: float | None) -> tuple[float, list[float]]:
    """Groups a second and the latencies, of one round on a fresh keyspace."""
    asyncio.run(_with(url, _flush))
    options = ["--url", url, "--path", path, "--seconds", str(seconds), *(["--rate", str(rate)] if rate else [])]
    command = [sys.executable, "-m", "benchmarks.queue"]
    worker = subprocess.Popen([*command, "--role", "worker", *options], stderr=subprocess.DEVNULL)
    try:
        told = subprocess.run([*command, "--role", "learner", *options], check=True, capture_output=True, text=True)
    finally:
        worker.kill()
        worker.wait()
    seen = json.loads(told.stdout)
    return len(seen) / seconds, [latency for _, latency in seen]


async def _flush(broker: Broker) -> None:
    await broker.redis.flushall()


async def _with(url: str, use: Callable[[Broker], Awaitable[Any]]) -> Any:
    broker = Broker.connect(url, patient=True)
    try:
        return await use(broker)
    finally:
        await broker.close()


def measure(rounds: int, seconds: float, *, paced: bool = True) -> list[Figure]:
    """Ours and bare in turn, and with `paced` the latency at half the aim."""
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedValkey.prepare(Path(folder) / "valkey", free_ports(["valkey"])["valkey"])
        supervisor = Supervisor(Path(folder) / "logs", RestartPolicy())
        try:
            supervisor.start(server.process())
            asyncio.run(_with(server.url, Broker.ping))
            ours, bare, latencies = [], [], []
            for _ in range(rounds):
                ours.append(run(server.url, "ours", seconds, None)[0])
                bare.append(run(server.url, "bare", seconds, None)[0])
                if paced:
                    latencies.append(run(server.url, "ours", seconds, HALF_AIM))
        finally:
            supervisor.stop()
    throughput = beside(
        "groups through the broker", ours, bare, "bare XADD and XREADGROUP", "groups/s", COMMAND, aim="2,000 groups/s"
    )
    return [throughput, *latency_figures(latencies)] if paced else [throughput]


def latency_figures(paced: list[tuple[float, list[float]]]) -> list[Figure]:
    p50, p99 = ([1000 * float(np.percentile(times, q)) for _, times in paced] for q in (50, 99))
    size, count = len(wire.encode(GROUP)), SAMPLES * TOKENS
    reached = float(np.median([rate for rate, _ in paced]))
    at = f"at {HALF_AIM:,.0f} groups/s offered"
    return [
        alone(f"latency p50 {at}", p50, "ms", COMMAND),
        alone(f"latency p99 {at}", p99, "ms", COMMAND, aim="< 20 ms", note=f"{at}, {reached:,.0f}/s came through."),
        alone(
            "size", [size / count], "bytes/token", COMMAND, note="12 of the bytes are the id and two float32 values."
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--role", choices=("worker", "learner"), help=argparse.SUPPRESS)
    parser.add_argument("--path", choices=("ours", "bare"), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "worker":
        worker = work if given.path == "ours" else bare_work
        asyncio.run(_with(given.url, lambda broker: worker(broker, given.rate)))
    elif given.role == "learner":
        learner = learn if given.path == "ours" else bare_learn
        print(json.dumps(asyncio.run(_with(given.url, lambda broker: learner(broker, given.seconds)))))
    else:
        publish(measure(given.rounds, given.seconds))


if __name__ == "__main__":
    main()
