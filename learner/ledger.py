"""Logs with one or more JSON lines a step, which agree with the weights: cut back on resume, rebuilt by replay.

`ledger.jsonl` says which ticket was applied at which step; `metrics.jsonl` has one line a step.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from learner.storage import write_file
from potstill.contracts.trajectory import TrajectoryGroup


class StepLog:
    """A JSONL file whose every line has a `step`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, lines: Iterable[dict[str, Any]]) -> None:
        """Append and fsync."""
        with self._path.open("ab") as file:
            file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())

    def truncate_after(self, step: int) -> None:
        """Drop the lines of later steps, and a last line that was cut short."""
        write_file(
            self._path, b"".join(msgspec.json.encode(line) + b"\n" for line in self.lines() if line["step"] <= step)
        )

    def lines(self) -> list[dict[str, Any]]:
        """Every whole line."""
        if not self._path.exists():
            return []
        *whole, _cut_short_or_empty = self._path.read_bytes().split(b"\n")
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in whole]


def ledger_lines(step: int, groups: Sequence[TrajectoryGroup]) -> list[dict[str, Any]]:
    """One line a ticket: what of it went into the weights, or why nothing did."""
    return [_line(step, group) for group in groups]


def _line(step: int, group: TrajectoryGroup) -> dict[str, Any]:
    line: dict[str, Any] = {"ticket": str(group.ticket), "step": step}
    if group.tombstone is not None:
        return line | {"tombstone": group.tombstone}
    versions = sorted({trajectory.policy_version for trajectory in group.trajectories})
    return line | {"policy_versions": versions, "trajectories": len(group.trajectories)}
