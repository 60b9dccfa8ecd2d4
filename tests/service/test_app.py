from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, Request, Response

from potstill.contracts import wire
from potstill.contracts.arrays import LogProbs
from potstill.contracts.scoring import ScoreRequest, ScoreResponse, SequenceScore
from potstill.service.app import create_app
from potstill.service.errors import OverloadedError
from potstill.service.http import message_response, openapi_messages, read_message, until_disconnect
from potstill.service.settings import ServiceSettings

TOKEN = "a-token-of-some-length"
cancelled = threading.Event()


def small_service() -> FastAPI:
    app = create_app("small", ServiceSettings(token=TOKEN, max_body_bytes=2000, request_seconds=1.0))

    @app.post("/v1/score", openapi_extra=openapi_messages(ScoreRequest, ScoreResponse))
    async def score(request: Request) -> Response:
        message = await read_message(request, ScoreRequest)
        scores = tuple(SequenceScore(LogProbs.of([-1.0] * len(s.response_token_ids))) for s in message.sequences)
        return message_response(request, ScoreResponse(scores))

    @app.post("/slow")
    async def slow(request: Request) -> None:
        await request.body()
        try:
            await until_disconnect(request, asyncio.sleep(30))
        except asyncio.CancelledError:
            cancelled.set()
            raise

    @app.get("/full")
    async def full() -> None:
        raise OverloadedError("32 requests wait already", retry_after=2.4)

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("a secret inside")

    return app


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(small_service(), port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {TOKEN}"}) as opened:
        yield opened


def problem(response: httpx.Response) -> dict[str, object]:
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, object] = response.json()
    assert document["request_id"] == response.headers["x-request-id"]
    assert document["status"] == response.status_code
    return document


def test_probes_and_metrics_need_no_token_and_the_rest_does(url: str) -> None:
    for path in ("/livez", "/readyz", "/metrics"):
        assert httpx.get(url + path).status_code == 200
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"authorization": "Basic x"}):
        refused = httpx.get(url + "/v1/capabilities", headers=headers)
        assert refused.status_code == 401
        assert problem(refused)["code"] == "unauthorized"
        assert refused.headers["www-authenticate"] == "Bearer"


def test_json_and_msgpack_carry_the_same_answer(client: httpx.Client) -> None:
    body = {"sequences": [{"prompt_token_ids": [1], "response_token_ids": [2, 3]}]}
    as_json = client.post("/v1/score", json=body)
    assert as_json.json() == {"sequences": [{"logprobs": [-1.0, -1.0]}]}
    packed = wire.encode(wire.decode(as_json.request.content, ScoreRequest, wire.JSON))
    answer = client.post("/v1/score", content=packed, headers={"content-type": wire.MSGPACK, "accept": wire.MSGPACK})
    assert answer.headers["content-type"] == wire.MSGPACK
    assert wire.decode(answer.content, ScoreResponse).sequences[0].logprobs.tolist() == [-1.0, -1.0]


def test_a_malformed_body_is_a_problem_that_names_the_field(client: httpx.Client) -> None:
    refused = client.post("/v1/score", json={"sequences": [{"prompt_token_ids": ["x"], "response_token_ids": []}]})
    assert refused.status_code == 400
    assert "prompt_token_ids" in str(problem(refused)["detail"])


def test_a_body_over_the_limit_is_refused_declared_or_not(client: httpx.Client) -> None:
    assert client.post("/v1/score", content=b"x" * 3000).status_code == 413
    streamed = client.post("/v1/score", content=iter([b"x" * 1500, b"x" * 1500]))
    assert streamed.status_code == 413
    assert problem(streamed)["code"] == "too_large"


def test_overload_says_when_to_come_back(client: httpx.Client) -> None:
    refused = client.get("/full")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
    assert problem(refused)["code"] == "overloaded"


def test_a_fault_is_a_problem_without_its_inside(client: httpx.Client) -> None:
    answer = client.get("/broken")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert problem(answer)["code"] == "internal"


def test_a_request_has_a_deadline(client: httpx.Client) -> None:
    late = client.post("/slow", timeout=10)
    assert late.status_code == 504
    assert problem(late)["code"] == "deadline_exceeded"


def test_work_stops_when_the_caller_hangs_up(client: httpx.Client) -> None:
    cancelled.clear()
    with pytest.raises(httpx.ReadTimeout):
        client.post("/slow", timeout=0.2)
    assert cancelled.wait(0.7), "cancelled before the deadline would have done it"


def test_an_unknown_path_is_a_problem(client: httpx.Client) -> None:
    assert problem(client.get("/v1/nothing"))["code"] == "not_found"


def test_the_openapi_document_has_the_messages(client: httpx.Client) -> None:
    operation = client.get("/openapi.json").json()["paths"]["/v1/score"]["post"]
    assert set(operation["requestBody"]["content"]) == {wire.JSON, wire.MSGPACK}
    schema = operation["requestBody"]["content"][wire.JSON]["schema"]
    assert schema == {"$ref": "#/components/schemas/ScoreRequest"}
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    assert "response_token_ids" in schemas["Sequence"]["properties"]


def test_requests_are_counted_by_route_and_status(client: httpx.Client, url: str) -> None:
    client.get("/full")
    lines = httpx.get(url + "/metrics").text
    assert 'potstill_http_requests_total{method="GET",route="/full",service="small",status="503"}' in lines
