"""Harvard-MIT Mathematics Tournament, February and November 2025: 30 problems each."""

from __future__ import annotations

from potstill.contracts.problem import Problem
from potstill.data.hub import HubSource
from potstill.evaluation.suites.suite import Row, Suite, maths_problem

COLUMNS = ("problem_idx", "problem", "answer")


def _read(row: Row) -> Problem:
    return maths_problem(row["problem"], row["answer"], id=str(row["problem_idx"]))


SUITES = (
    Suite("hmmt25-feb", "HMMT February 2025", HubSource("MathArena/hmmt_feb_2025"), COLUMNS, _read),
    Suite("hmmt25-nov", "HMMT November 2025", HubSource("MathArena/hmmt_nov_2025"), COLUMNS, _read),
)
