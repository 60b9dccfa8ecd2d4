from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from learner.model import Student, load_student
from potstill.contracts.job import StudentSpec
from tests.tiny_model import write_tiny_model


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two cores are shared with whatever else runs here, and one thread gives the same bits every time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def student_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "student", seed=1, hidden=32, layers=1)


@pytest.fixture(scope="session")
def teacher_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "teacher", seed=2, hidden=32, layers=1)


@pytest.fixture
def student(student_folder: Path) -> Student:
    return load_student(StudentSpec(model=str(student_folder)), seed=0, device=torch.device("cpu"))
