"""A running platform, and one job on it to its end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from potstill.client import Client
from potstill.contracts.job import Job
from potstill.contracts.state import JobState
from potstill.local.stack import Stack, StackSpec, TeacherProcess
from potstill.local.threads import Threads


def platform(artifacts: Path, teachers: Mapping[str, str], student: str, data: Path) -> Stack:
    """One core each for student, teacher and learner; `teachers` are folders by name."""
    return Stack(
        StackSpec(
            artifacts=artifacts,
            student_model=student,
            teachers={name: TeacherProcess(model, "float32") for name, model in teachers.items()},
            student_dtype="float32",
            max_length=64,
            student_slots=128,
            threads=Threads(1, 1, 1),
            data_roots=(data.absolute(),),
        )
    )


def run_job(stack: Stack, client: Client, spec: Mapping[str, Any]) -> Job:
    """Submit and wait. Raises SystemExit where the job does not succeed."""
    submitted = client.submit(dict(spec))
    for _event in client.events(submitted.id):
        stack.check()
    ended = client.get(submitted.id)
    if ended.status is not JobState.SUCCEEDED or ended.heldout is None:
        raise SystemExit(f"{ended.spec.name}, seed {ended.spec.seed}: {ended.status}: {ended.error}")
    return ended
