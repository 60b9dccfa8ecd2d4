"""`metrics.jsonl`: one line a step, for ever."""

from __future__ import annotations

from learner.ledger import StepLog
from learner.trackers import RunFacts


class JsonlTracker:
    def __init__(self, facts: RunFacts) -> None:
        self._log = StepLog(facts.folder / "metrics.jsonl")
        self._log.truncate_after(facts.step)

    def log(self, step: int, numbers: dict[str, float]) -> None:
        self._log.append([{"step": step, **numbers}])

    def close(self) -> None:
        """Every line is on the disk already."""


def start(facts: RunFacts) -> JsonlTracker:
    return JsonlTracker(facts)
