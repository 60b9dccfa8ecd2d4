"""Every kind of the registry keeps the contract; a kind without an entry fails here."""

from __future__ import annotations

import pytest

from potstill.contracts.verification import Verdict
from services.verifier.kinds import MODULES
from tests.services.verifier.contract import CONTRACTS, check_result
from tests.services.verifier.running import Verifier

every_kind = pytest.mark.parametrize("kind", MODULES)


@every_kind
def test_a_right_response_earns_the_full_score_and_a_wrong_one_none(verifier: Verifier, kind: str) -> None:
    right, wrong = verifier.verify(CONTRACTS[kind].right, CONTRACTS[kind].wrong)
    assert (right.verdict, right.score) == (Verdict.ACCEPTED, 1.0)
    assert wrong.verdict.is_score
    assert wrong.score == 0.0


@every_kind
def test_malformed_responses_earn_no_credit_and_break_nothing(verifier: Verifier, kind: str) -> None:
    contract = CONTRACTS[kind]
    for result in verifier.verify(*contract.malformed()):
        check_result(result)
        assert not result.score
        assert result.verdict is not Verdict.SANDBOX_ERROR, result
    assert verifier.verify(contract.right)[0].score == 1.0


@every_kind
def test_what_it_is_judged_by_is_asked_for(verifier: Verifier, kind: str) -> None:
    contract = CONTRACTS[kind]
    refused = verifier.post([contract.refused])
    assert refused.status_code == 422, refused.text
    assert refused.json()["errors"][0]["field"].startswith("items.0.")
    if contract.undecidable is not None:
        [result] = verifier.verify(contract.undecidable)
        check_result(result)
        assert result.score is None


@every_kind
def test_the_same_item_gets_the_same_result(verifier: Verifier, kind: str) -> None:
    contract = CONTRACTS[kind]
    results = verifier.verify(*[contract.right, contract.wrong] * 6)
    for result in results:
        check_result(result)
    assert len({(r.id, r.verdict, r.score, r.detail.get("answer")) for r in results}) == 2


@every_kind
def test_an_explanation_is_bounded_and_changes_no_verdict(verifier: Verifier, kind: str) -> None:
    contract = CONTRACTS[kind]
    items = [contract.right, contract.wrong, *contract.malformed()]
    for plain, explained in zip(verifier.verify(*items), verifier.explain(*items), strict=True):
        check_result(explained)
        assert (plain.verdict, plain.score) == (explained.verdict, explained.score)
        assert plain.detail.keys() <= explained.detail.keys()
