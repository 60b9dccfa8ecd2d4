"""What is refused, with which code, and that the teacher goes on serving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from potstill.contracts.arrays import TokenIds
from potstill.contracts.capabilities import EngineInfo, ModelInfo
from potstill.contracts.scoring import ScoreRequest, Sequence
from potstill.service.errors import UnprocessableError
from services.teacher.engine import EngineFacts, Feature
from services.teacher.validation import check_request
from tests.services.teacher import reference
from tests.services.teacher.conftest import TeacherClient

GOOD = reference.group(1, 20, [9, 4])


def _sequence(**changed: Any) -> dict[str, Any]:
    return {"prompt_token_ids": [1, 5, 6], "response_token_ids": [7, 8, 2]} | changed


@pytest.mark.parametrize(
    ("sequence", "others", "field"),
    [
        (_sequence(prompt_token_ids=[1, 264]), {}, "sequences[0].prompt_token_ids"),
        (_sequence(response_token_ids=[-1]), {}, "sequences[0].response_token_ids"),
        (_sequence(response_token_ids=[[7, 8]]), {}, "sequences[0].response_token_ids"),
        (_sequence(prompt_token_ids=[]), {}, "sequences[0].prompt_token_ids"),
        (_sequence(candidate_ids=[[1], [2]]), {}, "sequences[0].candidate_ids"),
        (_sequence(candidate_ids=[1, 2, 3]), {}, "sequences[0].candidate_ids"),
        (_sequence(candidate_ids=[[1], [2], [264]]), {}, "sequences[0].candidate_ids"),
        (_sequence(), {"temperature": 0.0}, "temperature"),
        (_sequence(), {"temperature": -1.0}, "temperature"),
        (_sequence(), {"top_k": -1}, "top_k"),
        (_sequence(), {"top_k": 265}, "top_k"),
    ],
)
def test_a_request_that_cannot_be_scored_names_its_field(
    client: TeacherClient, sequence: dict[str, Any], others: dict[str, Any], field: str
) -> None:
    answer = client.http.post("/v1/score", json={"sequences": [sequence], **others})
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["errors"][0]["field"]) == (422, "invalid_request", field)


@pytest.mark.parametrize("body", ["{", "[]", '{"sequences": [{}]}', '{"sequences": [{"prompt_token_ids": [1.5]}]}'])
def test_a_body_that_cannot_be_read_is_400(client: TeacherClient, body: str) -> None:
    answer = client.http.post("/v1/score", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")


def test_not_a_number_is_no_temperature(client: TeacherClient) -> None:
    assert client.post(ScoreRequest(GOOD, temperature=float("nan"))).status_code == 422


def test_the_longest_sequence_is_scored_and_a_longer_one_is_413(client: TeacherClient) -> None:
    (longest,) = reference.group(1, 500, [12])
    assert client.post(ScoreRequest((longest,))).status_code == 200
    (longer,) = reference.group(1, 500, [13])
    answer = client.post(ScoreRequest((longer,)))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_long")


def test_a_request_that_can_never_fit_is_413_and_the_next_one_is_served(model: Path, other_teacher) -> None:
    rejections = 'potstill_teacher_rejections_total{code="too_large"}'
    with other_teacher(model, teacher_memory_bytes=8_000_000) as small:
        before = small.metric(rejections)
        huge = ScoreRequest(reference.group(1, 200, [200] * 32))
        answer = small.post(huge)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        assert small.metric(rejections) - before == 1
        assert small.post(ScoreRequest(GOOD)).status_code == 200
        assert small.metric("potstill_teacher_admitted_bytes") == 0


def test_candidates_and_top_k_count_as_memory(model: Path, other_teacher) -> None:
    with other_teacher(model, teacher_memory_bytes=8_000_000) as small:
        (sequence,) = reference.group(1, 200, [200])
        assert small.post(ScoreRequest((sequence,))).status_code == 200
        wide = TokenIds.of(np.zeros((200, 20_000)))
        asked = Sequence(sequence.prompt_token_ids, sequence.response_token_ids, wide)
        assert small.post(ScoreRequest((asked,))).status_code == 413


def test_another_tokenizer_is_409(client: TeacherClient) -> None:
    own = client.http.get("/v1/capabilities").json()["model"]["tokenizer"]
    assert client.post(ScoreRequest(GOOD), **{"x-potstill-tokenizer": own}).status_code == 200
    answer = client.post(ScoreRequest(GOOD), **{"x-potstill-tokenizer": "sha256:other"})
    assert (answer.status_code, answer.json()["code"]) == (409, "tokenizer_mismatch")
    assert own in answer.json()["detail"]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ScoreRequest(GOOD, temperature=0.7), "temperature_unsupported"),
        (ScoreRequest(GOOD, entropy=True), "entropy_unsupported"),
        (ScoreRequest(GOOD, top_k=2), "top_k_unsupported"),
        (
            ScoreRequest((Sequence(TokenIds.of([5]), TokenIds.of([6]), TokenIds.of([[7]])),)),
            "candidate_ids_unsupported",
        ),
    ],
)
def test_what_an_engine_does_not_list_is_refused_with_the_way_out(request_: ScoreRequest, code: str) -> None:
    model = ModelInfo("m", "local", reference.VOCAB_SIZE, "sha256:0", (2,), 512)
    facts = EngineFacts(model, EngineInfo("plain", "1", "float32"), frozenset({Feature.LOGPROBS}), 0, 1)
    check_request(ScoreRequest(GOOD), facts)
    with pytest.raises(UnprocessableError, match="POTSTILL_TEACHER_ENGINE=torch") as caught:
        check_request(request_, facts)
    assert caught.value.code == code
