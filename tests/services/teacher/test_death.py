"""A teacher whose engine has died ends, so that whoever supervises it starts another."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psutil
import pytest

from services.teacher import app
from services.teacher.engine import ENGINES, EngineDeadError
from services.teacher.torch_engine import TorchEngine
from tests.services.teacher.conftest import TeacherClient, started_teacher
from tests.services.teacher.processes import free_port, process, wait_until_answering

DEATH_SECONDS = 60.0


class _DyingEngine(TorchEngine):
    """The torch engine, until it is told to be dead; it leaves the first question after that open."""

    dead = threading.Event()
    asked: list[str] = []  # noqa: RUF012

    async def alive(self) -> None:
        if not self.dead.is_set():
            return await super().alive()
        self.asked.append("again" if self.asked else "first")
        if len(self.asked) == 1:
            await app.asyncio.Event().wait()
        raise EngineDeadError("gone")


def test_the_service_says_so_and_ends(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "dying", _DyingEngine)
    monkeypatch.setattr(app, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(app, "ANSWER_SECONDS", 0.2)
    ended = threading.Event()
    with started_teacher(ended.set, teacher_model=str(model), teacher_engine="dying") as client:
        client.wait_ready()
        assert not ended.wait(0.3)
        _DyingEngine.dead.set()
        assert ended.wait(10)
        answer = client.http.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "engine_dead")


@pytest.mark.vllm
@pytest.mark.slow
def test_the_process_ends_when_its_engine_is_killed(model: Path) -> None:
    pytest.importorskip("vllm")
    port = free_port()
    variables = {"POTSTILL_TEACHER_ENGINE": "vllm", "POTSTILL_TEACHER_MODEL": str(model), "POTSTILL_AUTH": "off"}
    # In bfloat16 vLLM crashes on a model this narrow.
    with process(port, HF_HUB_OFFLINE="1", POTSTILL_TEACHER_DTYPE="float32", **variables) as service:
        try:
            client = TeacherClient(f"http://127.0.0.1:{port}")
            wait_until_answering(client, service)
            client.wait_ready()
            children = psutil.Process(service.pid).children()
            (engine,) = [child for child in children if "resource_tracker" not in " ".join(child.cmdline())]
            engine.kill()
            begun = time.monotonic()
            service.wait(DEATH_SECONDS)
            assert time.monotonic() - begun < DEATH_SECONDS
        finally:
            service.kill()
