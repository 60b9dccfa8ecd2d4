"""Start, drain and death of the process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from potstill.contracts.generation import Sampling
from potstill.service.errors import UnavailableError
from potstill.service.settings import SettingsError
from services.student.engine import EngineDeadError, create_engine
from services.student.torch_engine import Posted, TorchEngine
from tests.services.student.students import prompt, student_settings, wait_until

LONG = Sampling(max_tokens=200)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def process(tiny_model: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    port = free_port()
    environment = os.environ | {
        "POTSTILL_AUTH": "off",
        "POTSTILL_PORT": str(port),
        "POTSTILL_ARTIFACTS": str(tmp_path),
        "POTSTILL_STUDENT_MODEL": str(tiny_model),
        "POTSTILL_STUDENT_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    running = subprocess.Popen([sys.executable, "-m", "services.student"], env=environment)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as client:
        yield running, client
    running.kill()
    running.wait()


def answers(client: httpx.Client, path: str) -> int | None:
    try:
        return client.get(path).status_code
    except httpx.TransportError:
        return None


def test_it_is_live_before_it_is_ready_and_drains_on_sigterm(
    process: tuple[subprocess.Popen[bytes], httpx.Client],
) -> None:
    running, client = process
    wait_until(lambda: answers(client, "/livez") is not None)
    assert answers(client, "/livez") == 200
    assert answers(client, "/readyz") == 503
    wait_until(lambda: answers(client, "/readyz") == 200)

    body = {"prompts": [{"token_ids": [1], "n": 200}], "sampling": {"max_tokens": 100}}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        request = pool.submit(client.post, "/v1/generate", json=body)
        wait_until(lambda: b"samples_running 0.0" not in client.get("/metrics").content)
        running.send_signal(signal.SIGTERM)
        response = request.result()
    assert response.status_code == 200
    assert len(response.json()["prompts"][0]["samples"]) == 200
    running.wait(timeout=30)


def test_a_model_that_is_not_there_ends_the_process(tmp_path: Path) -> None:
    environment = os.environ | {
        "POTSTILL_AUTH": "off",
        "POTSTILL_PORT": str(free_port()),
        "POTSTILL_STUDENT_MODEL": str(tmp_path / "nothing"),
        "HF_HUB_OFFLINE": "1",
    }
    ended = subprocess.run(
        [sys.executable, "-m", "services.student"], env=environment, capture_output=True, timeout=60, check=False
    )
    assert ended.returncode != 0
    assert b"POTSTILL_STUDENT_MODEL" in ended.stderr


async def test_when_the_engine_dies_everyone_hears_of_it(engine: TorchEngine) -> None:
    waiting = asyncio.ensure_future(engine.generate(prompt(1, n=500), LONG, 0))
    await asyncio.sleep(0.1)

    def break_down() -> None:
        raise RuntimeError("out of memory")

    engine._post(Posted(break_down, lambda _: None))
    with pytest.raises(EngineDeadError, match="out of memory"):
        await waiting
    with pytest.raises(EngineDeadError, match="out of memory"):
        await engine.alive()
    with pytest.raises(EngineDeadError, match="out of memory"):
        await engine.generate(prompt(1), LONG, 0)


async def test_stopping_answers_what_is_running(engine: TorchEngine) -> None:
    waiting = asyncio.ensure_future(engine.generate(prompt(1, n=500), LONG, 0))
    await asyncio.sleep(0.1)
    await engine.stop()
    with pytest.raises(UnavailableError, match="stopping"):
        await waiting


def test_an_unknown_engine_is_refused_by_name(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="POTSTILL_STUDENT_ENGINE: 'tpu' is none of torch, vllm"):
        create_engine(student_settings(tiny_model, tmp_path, student_engine="tpu"))


async def test_a_longer_length_than_the_model_reads_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="at most 512 tokens"):
        await TorchEngine(student_settings(tiny_model, tmp_path, student_max_length=513)).start()
