from __future__ import annotations

import contextlib
from pathlib import Path

import httpx
import pytest

from potstill.contracts import wire
from potstill.contracts.capabilities import Capabilities
from potstill.contracts.verification import VerifyItem
from tests.services.verifier.running import EASY, TOKEN, Verifier, eventually, started_verifier

LAYERS = {"process", "parent_death_signal", "rlimit_as", "rlimit_cpu", "no_new_privileges", "landlock", "seccomp"}


def test_results_come_in_the_order_of_the_items(verifier: Verifier) -> None:
    items = [VerifyItem(f"item-{i}", "math", f"So {i} + 7 = {i + 7 + i % 2}", str(i + 7)) for i in range(300)]
    results = verifier.verify(*items)
    assert [result.id for result in results] == [item.id for item in items]
    assert [result.score for result in results] == [1.0 - i % 2 for i in range(300)]


def test_a_person_may_speak_json(verifier: Verifier) -> None:
    item = {"id": "a", "kind": "math", "response": r"… \boxed{4}", "reference": "4"}
    answer = verifier.http.post("/v1/verify", json={"items": [item]}).json()
    assert answer["results"][0] | {"detail": None} == {"id": "a", "verdict": "accepted", "score": 1.0, "detail": None}
    assert set(answer["isolation"]) >= LAYERS


def test_an_empty_batch_is_answered(verifier: Verifier) -> None:
    assert verifier.verify() == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"items": [{"id": "a", "kind": "math"}]}, "response"),
        ({"items": [{"id": 7, "kind": "math", "response": "x"}]}, "id"),
        ({"items": "all"}, "items"),
        ({}, "items"),
    ],
)
def test_a_malformed_request_is_a_problem_that_names_the_field(verifier: Verifier, body: object, field: str) -> None:
    refused = verifier.http.post("/v1/verify", json=body)
    assert refused.status_code == 400
    assert refused.headers["content-type"] == "application/problem+json"
    assert (refused.json()["code"], field in refused.json()["detail"]) == ("malformed_request", True)


@pytest.mark.parametrize("kind", ["codes", "vibes"])
def test_an_unknown_kind_is_refused_with_the_known_ones(verifier: Verifier, kind: str) -> None:
    refused = verifier.post([EASY, VerifyItem("b", kind, "print(1)", "1")])
    assert refused.status_code == 422
    problem = refused.json()
    assert problem["code"] == "unknown_kind"
    assert problem["errors"] == [{"field": "items.1.kind", "message": f"unknown kind '{kind}'"}]
    assert "choice, code, exact, math" in problem["detail"]


def test_an_item_without_a_reference_is_refused(verifier: Verifier) -> None:
    refused = verifier.post([VerifyItem("a", "math", "42")])
    assert (refused.status_code, refused.json()["code"]) == (422, "missing_reference")


def test_capabilities_say_kinds_limits_and_isolation(verifier: Verifier) -> None:
    known = wire.decode(verifier.http.get("/v1/capabilities").content, Capabilities, wire.JSON)
    assert known.features == ("choice", "code", "exact", "math")
    assert set(known.isolation) >= LAYERS
    assert {verifier.metric(f'potstill_verifier_isolation{{layer="{layer}"}}') for layer in known.isolation} == {1.0}
    assert verifier.metric('potstill_verifier_self_tests_total{outcome="passed"}') >= 2
    assert known.limits["workers"] == 2


def test_livez_asks_a_worker(verifier: Verifier) -> None:
    before = verifier.metric('potstill_verifier_item_seconds_count{kind="exact"}')
    assert verifier.http.get("/livez").status_code == 200
    assert verifier.metric('potstill_verifier_item_seconds_count{kind="exact"}') == before + 1


def test_verdicts_are_counted_by_kind(verifier: Verifier) -> None:
    sample = 'potstill_verifier_verdicts_total{kind="math",verdict="accepted"}'
    before = verifier.metric(sample)
    verifier.verify(EASY, EASY)
    assert verifier.metric(sample) == before + 2


def test_a_worker_does_not_know_the_token(verifier: Verifier) -> None:
    environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in verifier.workers()]
    assert len(environments) == 3
    assert not any(TOKEN.encode() in environment for environment in environments)


def test_a_verifier_whose_self_test_fails_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "math_verify.py").write_text("raise ImportError('broken build')")
    with started_verifier({"PYTHONPATH": str(tmp_path)}) as broken:

        def refusal() -> str:
            with contextlib.suppress(httpx.TransportError):
                response = broken.http.get("/readyz")
                assert response.status_code == 503
                return str(response.json()["detail"])
            return ""

        eventually(lambda: "before its self-test passed" in refusal(), "the reason is not given")
