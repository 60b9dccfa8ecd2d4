"""A teacher as a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import httpx

from tests.services.teacher.conftest import START_SECONDS, TeacherClient


def process(port: int, **variables: str) -> subprocess.Popen[str]:
    """`python -m services.teacher` on that port."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "POTSTILL_PORT": str(port)} | variables
    command = [sys.executable, "-m", "services.teacher"]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def wait_until_answering(client: TeacherClient, running: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert running.poll() is None
        assert time.monotonic() < deadline
        try:
            client.http.get("/livez")
        except httpx.ConnectError:
            time.sleep(0.1)
        else:
            return


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
