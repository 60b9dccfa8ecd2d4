"""A real teacher behind a real HTTP server, on a tiny random model."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from potstill.contracts import wire
from potstill.contracts.scoring import ScoreRequest, ScoreResponse
from services.teacher.app import build
from services.teacher.settings import TeacherSettings
from tests.tiny_model import write_tiny_model

START_SECONDS = 280.0
STOP_SECONDS = 30.0


class TeacherClient:
    """Talks to one teacher the way a rollout worker does."""

    def __init__(self, url: str, count_requests: Callable[[], int] = lambda: 0) -> None:
        self.http = httpx.Client(base_url=url, timeout=60)
        self.count_requests = count_requests  # of any kind, answered so far

    def post(self, request: ScoreRequest, **headers: str) -> httpx.Response:
        types = {"content-type": wire.MSGPACK, "accept": wire.MSGPACK}
        return self.http.post("/v1/score", content=wire.encode(request), headers=types | headers)

    def score(self, request: ScoreRequest) -> ScoreResponse:
        response = self.post(request)
        assert response.status_code == 200, response.text
        return wire.decode(response.content, ScoreResponse)

    def metric(self, sample: str) -> float:
        """The value of one line of /metrics; 0 where it does not exist yet."""
        lines = self.http.get("/metrics").text.splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.rsplit(" ", 1)[0] == sample), 0.0)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while (answer := self.http.get("/readyz")).status_code != 200:
            assert time.monotonic() < deadline
            assert "loading" in answer.text, answer.text
            time.sleep(0.02)


@contextlib.contextmanager
def started_teacher(on_death: Callable[[], None] = lambda: None, **settings: Any) -> Iterator[TeacherClient]:
    """A teacher that answers HTTP; its model may still be loading."""
    configured = TeacherSettings(**({"auth": "off", "port": 0, "teacher_threads": 1, "drain_seconds": 2} | settings))
    config = uvicorn.Config(
        build(configured, on_death), host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    client = TeacherClient(f"http://{host}:{port}", lambda: server.server_state.total_requests)
    try:
        yield client
    finally:
        client.http.close()
        server.should_exit = True
        thread.join(STOP_SECONDS)
        assert not thread.is_alive()


@contextlib.contextmanager
def teacher(model: Path, **settings: Any) -> Iterator[TeacherClient]:
    """A teacher that is ready, in float32."""
    with started_teacher(**({"teacher_model": str(model), "teacher_dtype": "float32"} | settings)) as client:
        client.wait_ready()
        yield client


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("teacher") / "tiny")


@pytest.fixture(scope="session")
def client(model: Path) -> Iterator[TeacherClient]:
    with teacher(model) as ready:
        yield ready


@pytest.fixture(scope="session")
def other_teacher() -> Callable[..., contextlib.AbstractContextManager[TeacherClient]]:
    return teacher
