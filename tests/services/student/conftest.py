"""A student with a tiny random model: the engine alone, or behind real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.student.torch_engine import TorchEngine
from tests.services.student.students import RunningStudent, running_student, student_settings
from tests.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("student") / "model")


@pytest.fixture
async def engine(tiny_model: Path, tmp_path: Path) -> AsyncIterator[TorchEngine]:
    running = TorchEngine(student_settings(tiny_model, tmp_path))
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
def student(tiny_model: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningStudent]:
    """Settings can be changed with `@pytest.mark.parametrize("student", [{…}], indirect=True)`."""
    with running_student(student_settings(tiny_model, tmp_path / "artifacts", **getattr(request, "param", {}))) as it:
        yield it
