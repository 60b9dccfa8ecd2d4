"""Does the gateway hold out? `python -m benchmarks.gateway`

Two hundred clients for a minute, each of which submits a job, polls it, follows its events and cancels it, again and
again. The services behind the gateway answer at once, and no learner takes the jobs.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import numpy as np

from benchmarks.figures import Figure, alone, publish
from benchmarks.processes import TOKEN, Running, Service, running
from benchmarks.scale import job_spec, simulated
from examples.smollm2.weights import prepare_weights

COMMAND = "python -m benchmarks.gateway"
POLLS, FOLLOW_SECONDS = 8, 2.0


class Clients:
    """People at the gateway."""

    def __init__(self, url: str, spec: dict[str, Any]) -> None:
        limits = httpx.Limits(max_connections=None)
        self.http = httpx.AsyncClient(
            base_url=url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=60, limits=limits
        )
        self.spec = spec
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.errors: list[str] = []

    async def live(self, end: float) -> None:
        """Submit, poll, follow, cancel, again and again."""
        while time.monotonic() < end:
            told = await self._ask(
                "submit", "POST", "/v1/jobs", json=self.spec, headers={"Idempotency-Key": uuid4().hex}
            )
            if told is None:
                continue
            path = f"/v1/jobs/{told.json()['id']}"
            for _ in range(POLLS):
                await self._ask("poll", "GET", path)
                await asyncio.sleep(0.5)
            await self._follow(path)
            await self._ask("cancel", "POST", f"{path}/cancel")

    async def _ask(self, what: str, method: str, path: str, **options: Any) -> httpx.Response | None:
        begun = time.perf_counter()
        try:
            response = await self.http.request(method, path, **options)
        except httpx.TransportError as error:
            self.errors.append(f"{what}: {error!r}")
            return None
        self.seconds[what].append(time.perf_counter() - begun)
        if response.is_error:
            self.errors.append(f"{what}: {response.status_code} {response.text[:200]}")
            return None
        return response

    async def _follow(self, path: str) -> None:
        begun = time.perf_counter()
        try:
            async with self.http.stream("GET", f"{path}/events", headers={"accept": "text/event-stream"}) as response:
                self.seconds["stream opens"].append(time.perf_counter() - begun)
                if response.is_error:
                    self.errors.append(f"stream: {response.status_code}")
                    return
                async with asyncio.timeout(FOLLOW_SECONDS):
                    async for _ in response.aiter_lines():
                        pass
        except TimeoutError:
            pass
        except httpx.TransportError as error:
            self.errors.append(f"stream: {error!r}")


async def gateway(services: Running, model: Path, count: int, seconds: float) -> Clients:
    redis_url = services.queue()
    (services.folder / "train.jsonl").write_text('{"prompt": "1 + 1?", "answer": "2"}\n' * 4)
    settings = simulated(services, model=model)
    settings |= {"REDIS_URL": redis_url, "ARTIFACTS": str(services.folder)}
    at = services.start({"gateway": Service("services.gateway", settings, ready="/livez")})["gateway"]
    clients = Clients(at, job_spec(model))
    end = time.monotonic() + seconds
    await asyncio.gather(*(clients.live(end) for _ in range(count)))
    await clients.http.aclose()
    return clients


def gateway_figures(clients: Clients, count: int, seconds: float) -> list[Figure]:
    answered = sum(len(each) for each in clients.seconds.values())
    note = (
        f"{count} clients for {seconds:g} s in one process beside the gateway; {answered:,} answers, "
        f"{len(clients.errors)} errors."
    )
    return [
        alone(f"gateway, {what}, {name}", [1000 * float(np.percentile(each, q))], "ms", COMMAND, note=note)
        for what, each in clients.seconds.items()
        for name, q in (("p50", 50), ("p99", 99))
    ] + [alone("gateway, errors", [len(clients.errors)], "errors", COMMAND, aim="0", note=note)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--try", action="store_true", dest="is_trial", help="publish nothing")
    given = parser.parse_args()
    model = prepare_weights().resolve()
    with running() as services:
        clients = asyncio.run(gateway(services, model, given.clients, given.seconds))
    for error in dict.fromkeys(clients.errors):
        print(error)
    found = gateway_figures(clients, given.clients, given.seconds)
    if given.is_trial:
        print(*found, sep="\n")
    else:
        publish(found)


if __name__ == "__main__":
    main()
