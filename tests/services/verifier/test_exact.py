from __future__ import annotations

import pytest

from potstill.contracts.verification import Verdict
from tests.services.verifier.running import Verifier


@pytest.mark.parametrize(
    ("reference", "response", "right"),
    [
        ("Paris", "The answer is  paris.", Verdict.ACCEPTED),
        ("new york", "Thinking...\nNew  York", Verdict.ACCEPTED),
        ("Paris", r"\boxed{\text{Paris}}", Verdict.ACCEPTED),
        ("0.5", "1/2", Verdict.WRONG_ANSWER),
        ("Paris", "Paris or London", Verdict.WRONG_ANSWER),
        ("Paris", "", Verdict.WRONG_ANSWER),
        ("Paris", r"\boxed{Paris", Verdict.WRONG_ANSWER),
        (" ", "Paris", Verdict.UNDETERMINED),
    ],
)
def test_the_last_answer_is_compared_as_text(verifier: Verifier, reference: str, response: str, right: Verdict) -> None:
    assert verifier.verdict(reference, response, kind="exact") == right
