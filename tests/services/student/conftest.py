"""A student with a tiny random model: the engine alone, or behind real HTTP."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from potstill.contracts import wire
from potstill.contracts.arrays import TokenIds
from potstill.contracts.generation import GenerateRequest, GenerateResponse, PolicyRef, Prompt, Sampling
from potstill.service.serve import serve_in_thread
from services.student.app import build
from services.student.settings import StudentSettings
from services.student.torch_engine import TorchEngine
from tests.tiny_model import write_tiny_model

START_SECONDS = 60.0


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("student") / "model")


def student_settings(model: Path, artifacts: Path, **changes: Any) -> StudentSettings:
    defaults = {"auth": "off", "port": 0, "student_slots": 8, "student_max_length": 256, "student_threads": 1}
    return StudentSettings(student_model=str(model), artifacts=artifacts, **(defaults | changes))


@pytest.fixture
async def engine(tiny_model: Path, tmp_path: Path) -> AsyncIterator[TorchEngine]:
    running = TorchEngine(student_settings(tiny_model, tmp_path))
    await running.start()
    yield running
    await running.stop()


def prompt(*ids: int, n: int = 1, seed: int = 7) -> Prompt:
    return Prompt(TokenIds.of(ids), n=n, seed=seed)


def publish(artifacts: Path, version: int, *, seed: int, job: str = "job_a") -> PolicyRef:
    """A full policy with other random weights, where a learner would put it."""
    folder = write_tiny_model(artifacts / "jobs" / job / "policies" / f"{version:06d}", seed=seed)
    return PolicyRef(version, folder.as_uri())


@dataclass(frozen=True)
class RunningStudent:
    url: str
    artifacts: Path
    client: httpx.Client

    def generate(self, *prompts: Prompt, policy: PolicyRef | None = None, **sampling: Any) -> GenerateResponse:
        request = GenerateRequest(prompts, Sampling(**sampling), policy)
        response = self.post(request)
        assert response.status_code == httpx.codes.OK, response.text
        return wire.decode(response.content, GenerateResponse)

    def post(self, request: GenerateRequest) -> httpx.Response:
        headers = {"content-type": wire.MSGPACK, "accept": wire.MSGPACK}
        return self.client.post("/v1/generate", content=wire.encode(request), headers=headers)

    def metric(self, name: str) -> float:
        lines = self.client.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


def wait_until(condition: Any, seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


@pytest.fixture
def student(tiny_model: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningStudent]:
    """Settings can be changed with `@pytest.mark.parametrize("student", [{…}], indirect=True)`."""
    settings = student_settings(tiny_model, tmp_path / "artifacts", **getattr(request, "param", {}))
    server = serve_in_thread(build(settings), settings)
    wait_until(lambda: server.started)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    with httpx.Client(base_url=url, timeout=60.0) as client:
        wait_until(lambda: client.get("/readyz").is_success)
        yield RunningStudent(url, settings.artifacts, client)
    server.should_exit = True
    wait_until(lambda: not server.started or not server.servers or not server.servers[0].is_serving())
