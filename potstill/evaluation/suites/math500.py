"""MATH-500: 500 problems of the MATH test set."""

from __future__ import annotations

import msgspec

from potstill.contracts.problem import Problem
from potstill.data.hub import HubSource
from potstill.evaluation.suites.suite import Row, Suite, maths_problem


def _read(row: Row) -> Problem:
    problem = maths_problem(row["problem"], row["answer"], id=str(row["unique_id"]))
    return msgspec.structs.replace(problem, solution=row.get("solution"))


SUITES = (
    Suite(
        "math500",
        "MATH-500",
        HubSource("HuggingFaceH4/MATH-500", split="test"),
        ("problem", "answer", "unique_id"),
        _read,
    ),
)
