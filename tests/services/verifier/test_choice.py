from __future__ import annotations

import pytest

from potstill.contracts.verification import Verdict
from tests.services.verifier.running import Verifier

RIGHT, WRONG, NONE = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.UNDETERMINED


@pytest.mark.parametrize(
    ("reference", "response", "right"),
    [
        ("C", "The answer is (C).", RIGHT),
        ("C", "The answer is c.", RIGHT),
        ("C", r"\boxed{\textbf{(C)}\ 12}", RIGHT),
        ("C", "The correct option is C: Paris", RIGHT),
        ("B", "Answer: B) because it is", RIGHT),
        ("C", "Let's see. (B) no. (C) yes", RIGHT),
        ("C", "(C) is wrong.\nI choose D.", WRONG),
        ("C. Paris", "Paris", RIGHT),
        ("C. Paris", r"\boxed{C}", RIGHT),
        ("C. Paris", r"\boxed{D. Paris}", WRONG),  # the letter decides
        ("C. Paris", "London", WRONG),
        ("(B) 0.5", r"\boxed{1/2}", RIGHT),
        ("Paris", "(C) Paris", RIGHT),
        ("A cat", "A cat", RIGHT),
        ("A", "A triangle has three sides", WRONG),
        ("A, C", "The answer is A and C.", RIGHT),
        ("A and C", r"\boxed{C, A}", RIGHT),
        ("A and C", r"\boxed{A}", WRONG),
        ("A", r"\boxed{A, C}", WRONG),
        ("B", r"So \boxed{B", WRONG),
        ("D", "", WRONG),
        ("C", "Paris", WRONG),
        ("Paris", "C", NONE),  # nobody can tell which option C was
        ("", "D", NONE),
    ],
)
def test_an_option_is_picked_by_letter_or_by_text(
    verifier: Verifier, reference: str, response: str, right: Verdict
) -> None:
    assert verifier.verdict(reference, response, kind="choice") == right
