from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path

import pytest
import redis

from potstill.local.stack import free_ports
from potstill.local.supervisor import RestartPolicy, Supervisor
from potstill.local.valkey import EmbeddedValkey


def connect(server: EmbeddedValkey) -> redis.Redis:
    client = redis.Redis.from_url(server.url)
    for _ in range(200):
        try:
            client.ping()
        except redis.ConnectionError:
            time.sleep(0.02)
        else:
            return client
    raise AssertionError("Valkey did not come up")


def test_data_survives_a_kill_on_the_same_port(tmp_path: Path) -> None:
    server = EmbeddedValkey.prepare(tmp_path / "queue", free_ports(["valkey"])["valkey"])
    supervisor = Supervisor(tmp_path / "logs", RestartPolicy(first_delay_seconds=0.01))
    try:
        process = supervisor.start(server.process())
        client = connect(server)
        client.set("kept", "yes")
        client.execute_command("WAITAOF", 1, 0, 5000)
        os.kill(process.pid, signal.SIGKILL)
        client.close()
        time.sleep(0.2)
        assert connect(server).get("kept") == b"yes"
    finally:
        supervisor.stop()


def test_nobody_gets_in_without_the_password(tmp_path: Path) -> None:
    server = EmbeddedValkey.prepare(tmp_path / "queue", free_ports(["valkey"])["valkey"])
    assert stat.S_IMODE((tmp_path / "queue" / "valkey.conf").stat().st_mode) == 0o600
    supervisor = Supervisor(tmp_path / "logs")
    try:
        supervisor.start(server.process())
        connect(server)
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=server.port).ping()
    finally:
        supervisor.stop()
