"""What the last steps of a job were like, over all its rows and for each teacher's own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from potstill.contracts.job import StepMetrics

LAST_STEPS = 10
OVERALL = "overall"
COLUMNS = {  # of the table, which has to fit a narrow terminal
    "reverse_kl": "reverse KL",
    "gate_zeroed_share": "gate zeroed",
    "correct_share": "correct",
    "groups_all_right": "all right",
    "groups_mixed": "mixed",
    "groups_all_wrong": "all wrong",
}


@dataclass(frozen=True)
class RowsOfTeacher:
    """Means over steps (None where no step has the number), and sums for groups."""

    reverse_kl: float | None  # nats a token
    gate_zeroed_share: float | None
    gate_zeroed_share_right: float | None
    gate_zeroed_share_wrong: float | None
    correct_share: float | None
    groups_all_right: int
    groups_mixed: int
    groups_all_wrong: int


@dataclass(frozen=True)
class LastSteps:
    """Of a job that reported at least one step."""

    steps: int
    overall: RowsOfTeacher
    teachers: Mapping[str, RowsOfTeacher]

    @classmethod
    def of(cls, reported: Sequence[StepMetrics]) -> LastSteps | None:
        """A step that was replayed counts once, as it was last. None without a step."""
        by_step = {entry.step: entry.values for entry in reported}
        last = [by_step[step] for step in sorted(by_step)[-LAST_STEPS:]]
        if not last:
            return None
        teachers = sorted({key.partition("/")[2] for values in last for key in values if "/" in key})
        return cls(len(last), _rows(last, ""), {name: _rows(last, f"/{name}") for name in teachers})

    def document(self) -> dict[str, Any]:
        """For `summary.json`."""
        return asdict(self)

    def table(self) -> Table:
        """A line a teacher, and one for all."""
        table = Table(title=f"the last {self.steps} steps, by teacher", title_justify="left")
        table.add_column("")
        for heading in COLUMNS.values():
            table.add_column(heading, justify="right")
        for name, rows in self.teachers.items():
            table.add_row(name, *_cells(rows))
        table.add_section()
        table.add_row(OVERALL, *_cells(self.overall), style="bold")
        return table


def _rows(steps: Sequence[Mapping[str, Any]], suffix: str) -> RowsOfTeacher:
    def mean(name: str) -> float | None:
        found = [float(values[name + suffix]) for values in steps if values.get(name + suffix) is not None]
        return math.fsum(found) / len(found) if found else None

    def total(name: str) -> int:
        return sum(int(values.get(name + suffix) or 0) for values in steps)

    return RowsOfTeacher(
        reverse_kl=mean("reverse_kl"),
        gate_zeroed_share=mean("gate_zeroed_share"),
        gate_zeroed_share_right=mean("gate_zeroed_share_right"),
        gate_zeroed_share_wrong=mean("gate_zeroed_share_wrong"),
        correct_share=mean("correct_share"),
        groups_all_right=total("groups_all_right"),
        groups_mixed=total("groups_mixed"),
        groups_all_wrong=total("groups_all_wrong"),
    )


def _cells(rows: RowsOfTeacher) -> list[str]:
    return [_cell(getattr(rows, name)) for name in COLUMNS]


def _cell(value: float | int | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
