"""Strictly on-policy on the torch engine: whatever is killed, the weights are those of a quiet run, bit for bit."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from potstill.client import Client
from potstill.contracts.job import Job
from potstill.contracts.state import JobState
from potstill.local.stack import Stack, StackSpec, TeacherProcess
from potstill.local.supervisor import RestartPolicy
from potstill.local.threads import Threads
from tests.tiny_model import write_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEPS, PROMPTS, KILL_AT = 10, 4, 3
FAILPOINTS = {
    "learner.before_step": 2,
    "learner.after_journal": 3,
    "learner.after_step": 5,
    "learner.before_ack": 6,
    "learner.mid_checkpoint": 8,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("system")
    write_tiny_model(root / "student", seed=0)
    write_tiny_model(root / "teacher", seed=1)
    rows = [{"prompt": f"{i} + 1?", "answer": str(i + 1)} for i in range(24)]
    (root / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


@pytest.fixture(scope="module")
def stack(folder: Path) -> Iterator[Stack]:
    spec = StackSpec(
        artifacts=folder / "artifacts",
        student_model=str(folder / "student"),
        teachers={"maths": TeacherProcess(str(folder / "teacher"), "float32")},
        threads=Threads(1, 1, 1),
        restarts=RestartPolicy(max_deaths=100),
        data_roots=(folder,),
        env={"POTSTILL_ROLLOUT_LEASE_SECONDS": "3", "POTSTILL_LEARNER_LEASE_SECONDS": "5"},
        process_env={"learner": {"POTSTILL_FAILPOINTS": failpoints(folder)}},
    )
    with Stack(spec) as running:
        yield running


def failpoints(folder: Path) -> str:
    """Each of the five places kills the learner once, in the first job that finds its marker missing."""
    return ",".join(f"{place}@{step}={folder / place}" for place, step in FAILPOINTS.items())


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    with stack.client() as connected:
        yield connected


@pytest.fixture(scope="module")
def quiet(stack: Stack, client: Client, folder: Path) -> bytes:
    """The final weights of a run in which nothing is killed."""
    for place in FAILPOINTS:
        (folder / place).touch()
    return weights(finish(client, submit(client, folder)))


def submit(client: Client, folder: Path) -> str:
    job: dict[str, Any] = {
        "name": "bitwise",
        "student": {"model": str(folder / "student")},
        "teachers": {"maths": {"model": str(folder / "teacher")}},
        "data": {"train": str(folder / "train.jsonl")},
        "objective": {"preset": "opd"},
        "sampling": {"n": 2, "max_tokens": 12},
        "training": {
            "steps": STEPS,
            "prompts_per_step": PROMPTS,
            "lr": 1e-3,
            "max_staleness": 0,
            "checkpoint_every": 4,
        },
    }
    return client.submit(job).id


def finish(client: Client, job_id: str) -> Job:
    for _ in client.events(job_id):
        pass
    ended = client.get(job_id)
    assert ended.status is JobState.SUCCEEDED, ended.error
    return ended


def weights(job: Job) -> bytes:
    assert job.checkpoint is not None
    return (Path(job.checkpoint) / "model.safetensors").read_bytes()


def assert_each_ticket_applied_once(stack: Stack, job_id: str) -> None:
    lines = (stack.artifacts / "jobs" / job_id / "ledger.jsonl").read_text().splitlines()
    applied = [(entry["step"], entry["ticket"]) for entry in map(json.loads, lines)]
    assert len(applied) == len({ticket for _, ticket in applied}) == STEPS * PROMPTS
    assert sorted({step for step, _ in applied}) == list(range(1, STEPS + 1))


def test_the_same_job_twice_gives_the_same_weights(quiet: bytes, client: Client, folder: Path) -> None:
    assert weights(finish(client, submit(client, folder))) == quiet


def test_training_changed_the_weights(quiet: bytes, folder: Path) -> None:
    assert (folder / "student" / "model.safetensors").read_bytes() != quiet


def test_a_learner_killed_at_five_places_ends_with_the_same_weights(
    quiet: bytes, stack: Stack, client: Client, folder: Path
) -> None:
    for place in FAILPOINTS:
        (folder / place).unlink()
    before = stack.process("learner").restarts
    job_id = submit(client, folder)
    ended = finish(client, job_id)
    assert all((folder / place).exists() for place in FAILPOINTS), "every place was reached"
    assert stack.process("learner").restarts - before == len(FAILPOINTS)
    assert_each_ticket_applied_once(stack, job_id)
    assert weights(ended) == quiet


@pytest.mark.parametrize("name", ["rollout-0", "student", "teacher-maths", "verifier", "gateway", "valkey", "learner"])
def test_a_killed_process_does_not_change_the_weights(
    quiet: bytes, stack: Stack, client: Client, folder: Path, name: str
) -> None:
    job_id = submit(client, folder)
    while client.get(job_id).progress.step < KILL_AT:
        time.sleep(0.01)
    os.kill(stack.process(name).pid, signal.SIGKILL)
    ended = finish(client, job_id)
    assert_each_ticket_applied_once(stack, job_id)
    assert weights(ended) == quiet
