"""`?explain=true`, through the service."""

from __future__ import annotations

from typing import Any

import pytest

from potstill.contracts.verification import VerifyItem
from tests.services.verifier.running import Verifier

EXPLAINED: list[tuple[str, str, str, dict[str, Any]]] = [
    (
        "math",
        "$42$",
        r"So \boxed{x = 41}",
        {"answer": "41", "extracted": "x = 41", "source": "box", "at": 10, "read_as": "41", "reference": "42"}
        | {"reference_read_as": "42", "method": "number", "reason": "another number"},
    ),
    (
        "math",
        "C",
        "The answer is (C).",
        {
            "answer": "C",
            "extracted": "(C)",
            "source": "statement",
            "read_as": "C",
            "reference": "C",
            "method": "choice",
        },
    ),
    (
        "exact",
        "paris",
        "Thinking.\n**Paris**",
        {"answer": "paris", "extracted": "**Paris**", "source": "last line", "at": 10, "read_as": "paris"}
        | {"reference": "paris", "reference_read_as": "paris", "method": "text"},
    ),
    (
        "choice",
        "C. Paris",
        "The answer is D.",
        {"answer": "D", "extracted": "D", "source": "statement", "at": 14, "read_as": "D", "reference": "C. Paris"}
        | {"reference_read_as": "C: Paris", "method": "letter", "reason": "another choice"},
    ),
]


@pytest.mark.parametrize(("kind", "reference", "response", "explained"), EXPLAINED)
def test_an_explanation_says_what_was_found_where_and_why_it_was_judged_so(
    verifier: Verifier, kind: str, reference: str, response: str, explained: dict[str, Any]
) -> None:
    item = VerifyItem("one", kind, response, reference)
    assert verifier.explain(item)[0].detail == explained
    assert verifier.verify(item)[0].detail == {"answer": explained["answer"]}


def test_where_no_answer_was_found_none_is_told(verifier: Verifier) -> None:
    [result] = verifier.verify(VerifyItem("one", "math", "I do not know", "42"))
    assert (result.score, result.detail) == (0.0, {})


def test_long_texts_are_shown_in_part(verifier: Verifier) -> None:
    [result] = verifier.explain(VerifyItem("one", "exact", "x" * 10_000, "y" * 10_000))
    assert all(len(value) <= 200 for value in result.detail.values() if isinstance(value, str))


def test_explain_must_be_true_or_false(verifier: Verifier) -> None:
    refused = verifier.http.post("/v1/verify?explain=perhaps", json={"items": []})
    assert refused.headers["content-type"] == "application/problem+json"
    assert "explain" in refused.text
