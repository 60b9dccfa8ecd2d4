"""Do more rollout workers do more? `python -m benchmarks.scale`

Worker processes of eight tickets each, as they are, against one process that answers for student, teacher and verifier
after a fixed time.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, beside, publish
from benchmarks.processes import Running, Service, running
from examples.smollm2.weights import prepare_weights
from potstill.broker import Broker
from potstill.broker.jobs import JobStore
from potstill.broker.tickets import TicketQueue
from potstill.broker.trajectories import TrajectoryStream
from potstill.contracts.generation import Sampling
from potstill.contracts.job import JobSpec
from potstill.contracts.problem import Message, Problem
from potstill.contracts.ticket import Phase, Ticket, TicketId

COMMAND = "python -m benchmarks.scale"
JOB, LANE = "job_scale", "default"
WORKERS = (1, 2, 4, 8)
CONCURRENCY, LATENCY_SECONDS = 8, 2.0
AHEAD = 512  # tickets in the queue


def job_spec(model: Path, train: str = "train.jsonl") -> dict[str, Any]:
    return {
        "name": "scale",
        "student": {"model": str(model)},
        "teachers": {"maths": {"model": str(model)}},
        "data": {"train": train},
        "sampling": {"n": 4, "max_tokens": 64},
        "training": {"steps": 1000},
    }


def tickets(step: int) -> list[Ticket]:
    problem = Problem("p", (Message("user", "What is 2 + 2?"),), reference="4")
    sampling = Sampling(max_tokens=64, stop_token_ids=(2,))
    return [
        Ticket(TicketId(JOB, Phase.TRAIN, step, slot), problem, 4, slot, None, sampling, "maths", time.time())
        for slot in range(AHEAD)
    ]


async def groups_per_second(url: str, seconds: float) -> float:
    """As a learner sees it, after one round of the services' latency."""
    broker = Broker.connect(url, patient=True)
    queue, stream = TicketQueue(broker, LANE), TrajectoryStream(broker, JOB)
    step, received, begun = 0, 0, None
    counted, last = 0, 0.0
    try:
        while begun is None or time.monotonic() - begun < seconds:
            while step * AHEAD - received < AHEAD:
                step += 1
                await queue.issue(tickets(step))
            batch = await stream.new(block=200)
            await stream.acknowledge([each.entry for each in batch])
            received += len(batch)
            if begun is None and received >= 2 * CONCURRENCY:
                begun = time.monotonic()
            elif begun is not None and batch:
                counted, last = counted + len(batch), time.monotonic()
        return counted / (last - begun)
    finally:
        await stream.discard()
        await broker.close()


def simulated(services: Running, *, seconds: float = 0.0, model: Path = Path()) -> dict[str, str]:
    told = {"SIMULATED_SECONDS": str(seconds), "SIMULATED_MODEL": str(model)}
    service = Service("benchmarks.simulated", {}, ready="/student/readyz", environment=told)
    url = services.start({"simulated": service})["simulated"]
    return {
        "STUDENT_URL": f"{url}/student",
        "TEACHERS": f"maths={url}/teacher",
        "VERIFIER_URL": f"{url}/verifier",
    }


async def scaling(services: Running, model: Path, seconds: float, workers: Sequence[int] = WORKERS) -> dict[int, float]:
    """Groups a second by number of workers."""
    redis_url = services.queue()
    broker = Broker.connect(redis_url, patient=True)
    await JobStore(broker).create(JOB, JobSpec.model_validate(job_spec(model)).model_dump(mode="json"))
    await broker.close()
    settings = simulated(services, seconds=LATENCY_SECONDS)
    settings |= {"REDIS_URL": redis_url, "ROLLOUT_CONCURRENCY": str(CONCURRENCY), "LANE": LANE}
    rates: dict[int, float] = {}
    started = 0
    for count in workers:
        services.start(
            {
                f"rollout-{i}": Service("services.rollout", settings | {"WORKER_NAME": f"w{i}"})
                for i in range(started, count)
            }
        )
        started = count
        rates[count] = await groups_per_second(redis_url, seconds)
        print(f"{count} workers: {rates[count]:.1f} groups/s", flush=True)
    return rates


def scaling_figures(told: list[dict[int, float]]) -> list[Figure]:
    one = [rates[1] for rates in told]
    note = (
        f"Services that take {LATENCY_SECONDS:g} s in the mean to generate and a quarter of it to score and to verify; "
        f"{CONCURRENCY} tickets in progress in a worker."
    )
    return [
        beside(
            f"rollout, {count} workers",
            [rates[count] for rates in told],
            one,
            "1 worker",
            "groups/s",
            COMMAND,
            aim="7" if count == WORKERS[-1] else None,
            note=note,
        )
        for count in told[0]
        if count > 1
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each number of workers")
    given = parser.parse_args()
    model = prepare_weights().resolve()
    told = []
    for _ in range(given.rounds):
        with running() as services:
            told.append(asyncio.run(scaling(services, model, given.seconds)))
    publish(scaling_figures(told))


if __name__ == "__main__":
    main()
