"""`potstill run` as a person runs it: the real command, every real process, tiny models."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.tiny_model import write_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

JOB = """
name: tiny
student: {model: models/student}
teachers: {maths: {model: models/teacher}}
data: {train: train.jsonl, heldout: heldout.jsonl}
sampling: {n: 2, max_tokens: 8}
training: {steps: 3, prompts_per_step: 4, lr: 1e-3, checkpoint_every: 2}
eval: {every: 2}
local: {teacher_dtype: float32, threads: {student: 1, teacher: 1, learner: 1}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_tiny_model(folder / "models" / "student", seed=0)
    write_tiny_model(folder / "models" / "teacher", seed=1)
    rows = [json.dumps({"prompt": f"{i}+1?", "answer": str(i + 1)}) + "\n" for i in range(8)]
    (folder / "train.jsonl").write_text("".join(rows))
    (folder / "heldout.jsonl").write_text("".join(rows[:4]))
    (folder / "job.yaml").write_text(JOB)
    return folder


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "potstill.cli.main", "run", str(folder / "job.yaml"), *arguments]
    # Where the tests themselves run in the background of a shell, Ctrl-C is ignored, and children inherit that.
    hears_ctrl_c = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(
        command, cwd=folder, preexec_fn=hears_ctrl_c, env=os.environ | {"PYTHONPATH": str(Path.cwd())}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _leaves_no_process() -> Iterator[None]:
    before = set(psutil.pids())
    yield
    deadline = time.monotonic() + 5
    while left := [process for process in map(_ours, set(psutil.pids()) - before) if process]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def _ours(pid: int) -> str | None:
    """The command line of a process that a run of this test module started."""
    try:
        process = psutil.Process(pid)
        mine = "/run0/" in process.environ().get("POTSTILL_ARTIFACTS", "")
        return " ".join(process.cmdline()) if mine else None
    except psutil.Error:
        return None


def test_a_run_ends_with_a_table_a_summary_and_a_plot(folder: Path) -> None:
    begun = time.monotonic()
    process = start(folder, "--out", "out", "--seed", "3", "--set", "training.steps=2")
    printed, complaints = process.communicate()
    assert process.returncode == 0, complaints
    assert "step 2/2" in printed
    assert "gain (paired)" in printed
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert (summary["steps"], summary["seed"], summary["heldout"]["n"]) == (2, 3, 4)
    last = summary["last_steps"]
    assert (last["steps"], list(last["teachers"])) == (2, ["maths"])
    assert last["teachers"]["maths"] == last["overall"], "there is one teacher"
    assert 0 < summary["seconds"] < time.monotonic() - begun
    assert (Path(summary["checkpoint"]) / "model.safetensors").exists()
    assert summary["checkpoint"] in printed
    assert (folder / "out" / "plot.png").exists()


def test_ctrl_c_cancels_the_job_and_stops_everything(folder: Path) -> None:
    process = start(folder, "--set", "training.steps=100000")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step 2/"):
            break
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    printed, complaints = process.communicate(timeout=60)
    assert time.monotonic() - begun < 40
    assert process.returncode == 130
    assert "Traceback" not in printed + complaints
    log = (folder / "artifacts" / "tiny" / "logs" / "learner.log").read_text()
    assert "outcome=cancelled" in log


def test_a_model_that_is_not_there_is_one_line_and_exit_code_1(folder: Path) -> None:
    (folder / "models" / "broken").mkdir()
    process = start(folder, "--set", "student.model=models/broken")
    printed, complaints = process.communicate()
    assert process.returncode == 1
    assert "Traceback" not in printed + complaints
    (line,) = [line for line in complaints.splitlines() if line.startswith("potstill: ")]
    assert "student" in line
    assert "models/broken" in line
