"""OlympiadBench, its 674 open-ended mathematics problems in English that need no picture."""

from __future__ import annotations

from potstill.contracts.problem import Problem
from potstill.data.hub import HubSource
from potstill.evaluation.suites.suite import Row, Suite, UnmappableRowError, maths_problem, plain_answer


def _read(row: Row) -> Problem:
    answers = row["final_answer"]
    if not answers:
        raise UnmappableRowError("the row has no answer")
    listed = [answers] if isinstance(answers, str) else list(answers)
    reference = ", ".join(plain_answer(answer).strip("$") for answer in listed)
    context = (row.get("context") or "").strip()
    question = f"{context}\n{row['question']}" if context else row["question"]
    return maths_problem(question, reference, id=str(row["id"]))


SUITES = (
    Suite(
        "olympiadbench",
        "OlympiadBench",
        HubSource("Hothan/OlympiadBench", "OE_TO_maths_en_COMP"),
        ("id", "question", "final_answer"),
        _read,
    ),
)
