"""A teacher whose engine has died ends, so that whoever supervises it starts another."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from services.teacher import app
from services.teacher.engine import ENGINES, EngineDeadError
from services.teacher.torch_engine import TorchEngine
from tests.services.teacher.conftest import started_teacher


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
