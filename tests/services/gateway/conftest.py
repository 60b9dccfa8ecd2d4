"""A real gateway on a real Valkey, with services around it that are small but real HTTP services."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr

from potstill.contracts.capabilities import Capabilities, EngineInfo, ModelInfo
from potstill.local.stack import free_ports
from potstill.local.supervisor import Supervisor
from potstill.local.valkey import EmbeddedValkey
from potstill.service.app import create_app
from potstill.service.errors import UnavailableError
from potstill.service.settings import ServiceSettings
from services.gateway.app import build
from services.gateway.settings import GatewaySettings
from tests.services.gateway.lane import Lane

TOKEN = "a-token-for-tests-only-0123456789"
STUDENT_MODEL = ModelInfo("lab/student", "main", 264, "sha256:aaaa", (2,), 512)
TEACHER_MODEL = ModelInfo("lab/teacher", "main", 264, "sha256:aaaa", (2,), 512)
STUDENT_FEATURES = ("lora", "temperature", "top_k")
TEACHER_FEATURES = ("temperature", "candidate_ids", "top_k")
TORCH = EngineInfo("torch", "2.13", "float32")


@contextmanager
def served(app: FastAPI, settings: ServiceSettings) -> Iterator[str]:
    """The base URL of an app on a real socket."""
    server = uvicorn.Server(uvicorn.Config(app, port=settings.port, log_level="warning"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{settings.port}"
    finally:
        app.state.draining = True
        server.should_exit = True
        thread.join()


def settings_of(kind: type[Any], **values: Any) -> Any:
    return kind(**({"port": free_ports(["any"])["any"], "token": SecretStr(TOKEN)} | values))


@pytest.fixture(scope="session")
def serve_capabilities() -> Iterator[Callable[..., str]]:
    """Start a service that says this of itself; returns its URL. Equal ones are started once."""
    urls: dict[str, str] = {}
    running = ExitStack()

    def start(
        service: str,
        model: ModelInfo | None = None,
        features: tuple[str, ...] = (),
        *,
        token: str = TOKEN,
        not_ready: str | None = None,
        limits: dict[str, float] | None = None,
    ) -> str:
        name = repr((service, model, features, token, not_ready, limits))
        if name not in urls:
            known = Capabilities(service, "0", model, TORCH, limits or {}, features)

            async def ready() -> None:
                if not_ready is not None:
                    raise UnavailableError(not_ready)

            settings = settings_of(ServiceSettings, token=SecretStr(token))
            app = create_app(service, settings, capabilities=lambda: known, ready=ready)
            urls[name] = running.enter_context(served(app, settings))
        return urls[name]

    with running:
        yield start


@pytest.fixture(scope="session")
def student_url(serve_capabilities: Callable[..., str]) -> str:
    return serve_capabilities("student", STUDENT_MODEL, STUDENT_FEATURES)


@pytest.fixture(scope="session")
def teacher_url(serve_capabilities: Callable[..., str]) -> str:
    return serve_capabilities("teacher", TEACHER_MODEL, TEACHER_FEATURES)


@pytest.fixture(scope="session")
def verifier_url(serve_capabilities: Callable[..., str]) -> str:
    return serve_capabilities("verifier", None, ("math", "code"))


@pytest.fixture(scope="session")
def silent_url() -> Iterator[str]:
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="session")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedValkey, Supervisor]]:
    folder = tmp_path_factory.mktemp("queue")
    server = EmbeddedValkey.prepare(folder, free_ports(["valkey"])["valkey"])
    supervisor = Supervisor(folder / "logs")
    supervisor.start(server.process())
    yield server, supervisor
    supervisor.stop()


class Gateway:
    """A running gateway, the files it may read, and a learner's hand on its jobs."""

    def __init__(self, url: str, artifacts: Path, redis_url: str, stop: Callable[[], object]) -> None:
        self.url = url
        self.stop = stop
        self.artifacts = artifacts
        self.http = httpx.Client(base_url=url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=30)
        self.lane = Lane(redis_url)

    def write_rows(self, name: str, rows: list[dict[str, Any]]) -> Path:
        path = self.artifacts / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def spec(self, **changes: Any) -> dict[str, Any]:
        """A job that this gateway accepts, with top-level keys replaced."""
        self.write_rows("train.jsonl", [{"prompt": "1+1?", "answer": "2"}, {"prompt": "2+2?", "answer": "4"}])
        self.write_rows("heldout.jsonl", [{"prompt": "3+3?", "answer": "6"}])
        accepted: dict[str, Any] = {
            "name": "demo",
            "student": {"model": STUDENT_MODEL.id},
            "teachers": {"maths": {"model": TEACHER_MODEL.id}},
            "data": {"train": "train.jsonl", "heldout": "heldout.jsonl"},
            "sampling": {"n": 2, "max_tokens": 64},
            "training": {"steps": 5},
        }
        return accepted | changes

    def submit(self, spec: dict[str, Any] | None = None, key: str | None = None) -> httpx.Response:
        headers = {"idempotency-key": key} if key else {}
        return self.http.post("/v1/jobs", json=spec if spec is not None else self.spec(), headers=headers)

    def new_job(self) -> str:
        response = self.submit()
        assert response.status_code == 202, response.text
        return str(response.json()["id"])

    def count_jobs(self) -> int:
        return len(self.http.get("/v1/jobs", params={"limit": 100}).json()["data"])


@pytest.fixture
def start_gateway(
    queue: tuple[EmbeddedValkey, Supervisor],
    tmp_path: Path,
    student_url: str,
    teacher_url: str,
    verifier_url: str,
) -> Iterator[Callable[..., Gateway]]:
    """Start gateways whose settings differ from a working one's as given."""
    running = ExitStack()

    def start(**changes: Any) -> Gateway:
        values: dict[str, Any] = {
            "artifacts": tmp_path,
            "data_roots": (tmp_path,),
            "redis_url": queue[0].url,
            "student_url": student_url,
            "teachers": {"maths": teacher_url},
            "verifier_url": verifier_url,
            "capability_seconds": 10.0,
            "count_seconds": 0.1,
        }
        settings = settings_of(GatewaySettings, **(values | changes))
        own = running.enter_context(ExitStack())
        url = own.enter_context(served(build(settings), settings))
        return Gateway(url, tmp_path, values["redis_url"], own.close)

    with running:
        yield start


@pytest.fixture
def gateway(start_gateway: Callable[..., Gateway]) -> Gateway:
    return start_gateway()
