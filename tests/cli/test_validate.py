"""`potstill validate` without a gateway, and the check that a teacher that is the student agrees with it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from potstill.cli.main import app
from potstill.local.self_check import SelfCheck
from tests.tiny_model import write_tiny_model

JOB = """
name: tiny
student: {model: student}
teachers: {maths: {model: teacher, context: {kind: solution}}}
data: {train: train.jsonl, heldout: heldout.jsonl}
sampling: {n: 2, max_tokens: 24}
training: {steps: 3, prompts_per_step: 4}
local: {teacher_dtype: float32, threads: {student: 1, teacher: 1, learner: 1}}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("POTSTILL_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    rows = [json.dumps({"prompt": f"{i}+1?", "answer": str(i + 1), "solution": "s"}) + "\n" for i in range(6)]
    (tmp_path / "train.jsonl").write_text("".join(rows))
    (tmp_path / "heldout.jsonl").write_text("".join(rows[:2]))
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_without_a_gateway_the_file_and_its_data_are_checked(job: Path) -> None:
    result = CliRunner().invoke(app, ["validate", str(job)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "in order: 6 training and 2 held-out problems" in result.stdout
    assert "no service was asked" in result.stdout


def test_a_row_that_cannot_be_used_is_named(job: Path) -> None:
    with (job.parent / "train.jsonl").open("a") as rows:
        rows.write(json.dumps({"prompt": "?", "answer": "1", "id": "bare"}) + "\n")
    result = CliRunner().invoke(app, ["validate", str(job)], env={"COLUMNS": "200"})
    assert result.exit_code == 1
    assert "row 7 (id 'bare')" in result.stderr


@pytest.mark.slow
def test_the_self_check_goes_through_the_real_services(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    write_tiny_model(job.parent / "student", seed=0)
    write_tiny_model(job.parent / "teacher", seed=1)
    result = CliRunner().invoke(app, ["validate", str(job), "--self-check"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "the job can run: 6 training" in result.stdout
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("self-check")]
    assert line.startswith("self-check passed: max |d|")
    assert "0 missing" in line


def test_one_that_does_not_agree_fails() -> None:
    good = SelfCheck("float32", positions=100, ends=2, mean=1e-6, largest=5e-4, missing=0)
    assert good.passed
    for change in ({"largest": 2e-3}, {"missing": 1}, {"positions": 0}, {"dtype": "bfloat16", "mean": 0.04}):
        assert not dataclasses.replace(good, **change).passed
    assert dataclasses.replace(good, dtype="bfloat16", mean=0.02, largest=0.4).passed
