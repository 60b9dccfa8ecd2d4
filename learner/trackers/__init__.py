"""Where a step's numbers are sent besides Prometheus and the job's record. A new tracker is one file and one line."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from learner.errors import JobError


@dataclass(frozen=True)
class RunFacts:
    """What a tracker is told of a job. `step` is the one that the job resumes after."""

    job_id: str
    name: str
    folder: Path
    step: int


class Tracker(Protocol):
    def log(self, step: int, numbers: dict[str, float]) -> None: ...

    def close(self) -> None: ...


# Name to module; the module has `start(facts) -> Tracker` and may import what is installed on request.
TRACKERS = {
    "jsonl": "learner.trackers.jsonl",
    "tensorboard": "learner.trackers.tensorboard",
    "wandb": "learner.trackers.wandb",
}


def start_trackers(names: Sequence[str], facts: RunFacts) -> list[Tracker]:
    """Start `jsonl` and the named ones. Raises JobError when what one needs is not installed."""
    return [_start(name, facts) for name in ("jsonl", *names)]


def _start(name: str, facts: RunFacts) -> Tracker:
    try:
        tracker: Tracker = importlib.import_module(TRACKERS[name]).start(facts)
    except ImportError as error:
        message = f"tracking by {name} needs a package the learner lacks ({error.name}): pip install 'potstill[{name}]'"
        raise JobError("tracker_not_installed", message) from error
    return tracker
