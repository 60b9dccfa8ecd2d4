"""American Invitational Mathematics Examination, 2024 and 2025: 30 problems each, answers 0 to 999."""

from __future__ import annotations

from potstill.contracts.problem import Problem
from potstill.data.hub import HubSource
from potstill.evaluation.suites.suite import Row, Suite, maths_problem


def _read_2024(row: Row) -> Problem:
    return maths_problem(row["problem"], row["answer"], id=str(row["id"]))


def _read_2025(row: Row) -> Problem:
    return maths_problem(row["problem"], row["answer"], id=str(row["problem_idx"]))


SUITES = (
    Suite("aime24", "AIME 2024", HubSource("HuggingFaceH4/aime_2024"), ("id", "problem", "answer"), _read_2024),
    Suite("aime25", "AIME 2025", HubSource("MathArena/aime_2025"), ("problem_idx", "problem", "answer"), _read_2025),
)
