"""Every process of the project, on tiny models: jobs go through, and go on when processes are killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from potstill.client import Client
from potstill.contracts.job import Job
from potstill.contracts.state import JobState
from potstill.local.stack import Stack, StackError, StackSpec, TeacherProcess
from potstill.local.supervisor import RestartPolicy, SupervisorError
from potstill.local.threads import Threads
from tests.tiny_model import write_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NUM_TRAIN, NUM_HELDOUT = 16, 4


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_tiny_model(folder / "student", seed=0)
    write_tiny_model(folder / "teacher", seed=1)
    return folder


def spec_of(models: Path, artifacts: Path, **changes: Any) -> StackSpec:
    teacher = TeacherProcess(str(models / "teacher"), "float32")
    values: dict[str, Any] = {
        "artifacts": artifacts,
        "student_model": str(models / "student"),
        "teachers": {"maths": teacher, "words": teacher},
        "threads": Threads(1, 1, 1),
        "student_slots": 6,
        "restarts": RestartPolicy(max_deaths=100),
        # A tiny job should not wait half a minute for the lease of a worker that was killed.
        "env": {"POTSTILL_ROLLOUT_LEASE_SECONDS": "3", "POTSTILL_LEARNER_LEASE_SECONDS": "5"},
    }
    return StackSpec(**(values | changes))


@pytest.fixture(scope="module")
def stack(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    artifacts = tmp_path_factory.mktemp("artifacts")
    rows = [{"prompt": f"{i}+1?", "answer": str(i + 1), "teacher": ("maths", "words")[i % 2]} for i in range(NUM_TRAIN)]
    (artifacts / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (artifacts / "heldout.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:NUM_HELDOUT]))
    with Stack(spec_of(models, artifacts)) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with stack.client() as connected:
        yield connected


def job_of(models: Path, steps: int) -> dict[str, Any]:
    return {
        "name": "tiny",
        "student": {"model": str(models / "student")},
        "teachers": {name: {"model": str(models / "teacher")} for name in ("maths", "words")},
        "data": {"train": "train.jsonl", "heldout": "heldout.jsonl"},
        "sampling": {"n": 2, "max_tokens": 8},
        "training": {"steps": steps, "prompts_per_step": 4, "lr": 1e-3, "checkpoint_every": 2},
        "eval": {"every": 0},
    }


def wait_for_step(client: Client, job_id: str, step: int) -> None:
    while (job := client.get(job_id)).progress.step < step:
        assert not job.status.is_terminal, job.error
        time.sleep(0.02)


def wait_for_end(client: Client, job_id: str) -> Job:
    for _ in client.events(job_id):
        pass
    return client.get(job_id)


def applied_tickets(stack: Stack, job_id: str) -> list[str]:
    lines = (stack.artifacts / "jobs" / job_id / "ledger.jsonl").read_text().splitlines()
    return [json.loads(line)["ticket"] for line in lines]


def test_a_job_goes_through_and_leaves_a_checkpoint(stack: Stack, client: Client, models: Path) -> None:
    submitted = client.submit(job_of(models, steps=3))
    ended = wait_for_end(client, submitted.id)
    assert ended.status is JobState.SUCCEEDED, ended.error
    assert ended.heldout is not None
    assert ended.heldout.n == NUM_HELDOUT
    assert ended.checkpoint is not None
    assert (Path(ended.checkpoint) / "model.safetensors").exists()
    assert [entry.step for entry in client.metrics(ended.id)] == [1, 2, 3]
    assert client.checkpoints(ended.id)[-1].final
    assert client.trajectories(ended.id).data
    assert len(set(applied_tickets(stack, ended.id))) == 3 * 4
    exported = httpx.get(f"{stack.urls['learner']}/metrics").text
    for values in (entry.values for entry in client.metrics(ended.id)):
        for name in ("groups_all_right", "groups_all_wrong", "groups_mixed"):
            assert values[name] == values[f"{name}/maths"] + values[f"{name}/words"]
        for name in ("reverse_kl", "gate_zeroed_share", "correct_share"):
            assert {f"{name}/maths", f"{name}/words"} <= values.keys()
            assert min(values[f"{name}/{t}"] for t in ("maths", "words")) - 1e-9 <= values[name]
            assert f'potstill_learner_teacher_{name}{{teacher="words"}}' in exported


def test_names_with_the_same_model_share_one_process(stack: Stack) -> None:
    assert stack.process("teacher-maths").pid == stack.process("teacher-words").pid
    assert stack.names == ("valkey", "student", "teacher-maths", "verifier", "gateway", "rollout-0", "learner")


def test_the_student_generates_as_many_samples_at_once_as_the_stack_says(stack: Stack) -> None:
    headers = {"Authorization": f"Bearer {stack.token}"}
    said = httpx.get(f"{stack._url('student')}/v1/capabilities", headers=headers).json()
    assert said["limits"]["slots"] == 6


@pytest.mark.parametrize("name", ["student", "teacher-maths", "verifier", "rollout-0", "gateway", "valkey", "learner"])
def test_a_job_goes_on_when_a_process_is_killed(stack: Stack, client: Client, models: Path, name: str) -> None:
    job = client.submit(job_of(models, steps=40))
    wait_for_step(client, job.id, 3)
    victim = stack.process(name)
    killed, before = victim.pid, victim.restarts
    os.kill(killed, signal.SIGKILL)
    ended = wait_for_end(client, job.id)
    assert ended.status is JobState.SUCCEEDED, ended.error
    assert stack.process(name).pid != killed
    assert victim.restarts == before + 1
    tickets = applied_tickets(stack, job.id)
    assert len(tickets) == len(set(tickets)) == 40 * 4, "a ticket was lost or applied twice"


def test_a_running_job_is_cancelled_within_seconds(client: Client, models: Path) -> None:
    job = client.submit(job_of(models, steps=100_000))
    wait_for_step(client, job.id, 2)
    client.cancel(job.id)
    begun = time.monotonic()
    assert wait_for_end(client, job.id).status is JobState.CANCELLED
    assert time.monotonic() - begun < 15


def test_a_job_is_paused_and_resumed_where_it_was(stack: Stack, client: Client, models: Path) -> None:
    job = client.submit(job_of(models, steps=60))
    wait_for_step(client, job.id, 5)
    client.pause(job.id)
    while client.get(job.id).status is not JobState.PAUSED:
        time.sleep(0.05)
    paused_at = client.get(job.id).progress.step
    time.sleep(1.0)
    assert client.get(job.id).progress.step == paused_at
    client.resume(job.id)
    assert wait_for_end(client, job.id).status is JobState.SUCCEEDED
    assert len(set(applied_tickets(stack, job.id))) == len(applied_tickets(stack, job.id)) == 60 * 4


def test_a_model_that_cannot_be_loaded_ends_the_start_at_once(models: Path, tmp_path: Path) -> None:
    (models / "broken").mkdir(exist_ok=True)
    spec = spec_of(models, tmp_path, student_model=str(models / "broken"), restarts=RestartPolicy(max_deaths=2))
    threads = threading.active_count()
    with pytest.raises((StackError, SupervisorError), match="student"), Stack(spec):
        pass
    assert threading.active_count() <= threads, "the supervisor goes on"
    mine = [
        child for child in psutil.Process().children(recursive=True) if str(models / "broken") in _environment(child)
    ]
    assert mine == []


def _environment(process: psutil.Process) -> str:
    try:
        return " ".join(process.environ().values())
    except psutil.Error:
        return ""
