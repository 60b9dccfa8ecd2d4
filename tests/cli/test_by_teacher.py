from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from potstill.cli.by_teacher import LAST_STEPS, LastSteps
from potstill.contracts.job import StepMetrics


def reported(step: int, **values: Any) -> StepMetrics:
    return StepMetrics(id=f"{step}-0", step=step, values=values)


STEPS = [
    reported(1, **{"reverse_kl": 2.0, "reverse_kl/maths": 2.0, "groups_mixed": 1, "groups_mixed/maths": 1}),
    reported(2, **{"reverse_kl": 8.0, "reverse_kl/maths": 1.0, "groups_mixed": 9, "groups_mixed/maths": 9}),
    reported(2, **{"reverse_kl": 1.0, "reverse_kl/maths": 0.5, "reverse_kl/code": 3.0, "groups_mixed": 3}),
]


def test_each_teacher_has_its_own_means_and_a_replayed_step_counts_once() -> None:
    last = LastSteps.of(STEPS)
    assert last is not None
    assert last.steps == 2
    assert (last.overall.reverse_kl, last.overall.groups_mixed) == (1.5, 4)
    assert {name: (rows.reverse_kl, rows.groups_mixed) for name, rows in last.teachers.items()} == {
        "maths": (1.25, 1),
        "code": (3.0, 0),
    }


def test_a_number_that_no_step_has_is_none_and_not_zero() -> None:
    last = LastSteps.of(STEPS)
    assert last is not None
    written = json.loads(json.dumps(last.document()))
    assert written["teachers"]["code"]["gate_zeroed_share"] is None
    assert written["overall"]["correct_share"] is None


def test_only_the_last_steps_count() -> None:
    last = LastSteps.of([reported(step, reverse_kl=float(step <= 5)) for step in range(1, LAST_STEPS + 6)])
    assert last is not None
    assert (last.steps, last.overall.reverse_kl) == (LAST_STEPS, 0.0)


def test_a_job_without_a_step_has_none() -> None:
    assert LastSteps.of([]) is None


@pytest.mark.parametrize("name", ["maths", "code", "overall", "1.250", "3.000"])
def test_the_table_has_a_line_for_each_and_one_for_all(name: str) -> None:
    last = LastSteps.of(STEPS)
    assert last is not None
    sink = io.StringIO()
    Console(file=sink, width=80).print(last.table())
    assert name in sink.getvalue()
