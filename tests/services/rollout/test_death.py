"""A worker whose loop has failed does not go on as if it worked."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

from potstill.broker import keys
from potstill.local.stack import free_ports
from potstill.local.supervisor import Supervisor
from potstill.local.valkey import EmbeddedValkey

PATIENCE_SECONDS = 60.0


@pytest.fixture
def queue_url(tmp_path: Path) -> Iterator[str]:
    valkey = EmbeddedValkey.prepare(tmp_path / "valkey", free_ports(["valkey"])["valkey"])
    supervisor = Supervisor(tmp_path / "logs")
    supervisor.start(valkey.process())
    yield valkey.url
    supervisor.stop()


def test_the_process_ends_when_its_loop_fails(queue_url: str) -> None:
    port = free_ports(["worker"])["worker"]
    variables = {
        "POTSTILL_PORT": str(port),
        "POTSTILL_AUTH": "off",
        "POTSTILL_REDIS_URL": queue_url,
        "POTSTILL_STUDENT_URL": "http://127.0.0.1:1",
        "POTSTILL_TEACHERS": "t=http://127.0.0.1:1",
        "POTSTILL_VERIFIER_URL": "http://127.0.0.1:1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "services.rollout"], env=os.environ | variables, stderr=subprocess.PIPE, text=True
    )
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while not _lives(port):
            assert time.monotonic() < until, "it did not start"
            time.sleep(0.1)
        redis.Redis.from_url(queue_url).set(keys.tickets("default"), "what is no stream")
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert process.returncode != 0
    assert "work of its own has failed" in said


def _lives(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/livez", timeout=5).status_code == 200
    except httpx.TransportError:
        return False
