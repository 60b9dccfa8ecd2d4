"""Minerva's 272 undergraduate questions on science and mathematics."""

from __future__ import annotations

from potstill.contracts.problem import Problem
from potstill.data.hub import HubSource
from potstill.evaluation.suites.suite import Row, Suite, maths_problem


def _read(row: Row) -> Problem:
    return maths_problem(row["question"], row["answer"])


SUITES = (Suite("minerva", "Minerva", HubSource("math-ai/minervamath", split="test"), ("question", "answer"), _read),)
