"""Weights & Biases; the run is the job, so a resumed job goes on in the same run."""

from __future__ import annotations

from typing import Any

from learner.trackers import RunFacts


class WandbTracker:
    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, step: int, numbers: dict[str, float]) -> None:
        self._run.log(numbers, step=step)

    def close(self) -> None:
        self._run.finish()


def start(facts: RunFacts) -> WandbTracker:
    import wandb

    run = wandb.init(project="potstill", id=facts.job_id, name=facts.name, dir=str(facts.folder), resume="allow")
    return WandbTracker(run)
