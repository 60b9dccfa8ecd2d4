"""American Mathematics Competitions: AMC 12 of 2023 (40 problems), and of 2022 and 2023 (83)."""

from __future__ import annotations

from potstill.contracts.problem import Problem
from potstill.data.hub import HubSource
from potstill.evaluation.suites.suite import Row, Suite, maths_problem


def _read_2023(row: Row) -> Problem:
    return maths_problem(row["question"], row["answer"], id=str(row["id"]))


def _read_both(row: Row) -> Problem:
    return maths_problem(row["problem"], row["answer"], id=str(row["id"]))


SUITES = (
    Suite("amc23", "AMC 2023", HubSource("math-ai/amc23", split="test"), ("id", "question", "answer"), _read_2023),
    Suite("amc", "AMC 2022 and 2023", HubSource("AI-MO/aimo-validation-amc"), ("id", "problem", "answer"), _read_both),
)
