"""`POST /v1/generate` over real HTTP."""

from __future__ import annotations

import concurrent.futures
import socket
from typing import Any

import httpx
import msgspec
import pytest

from potstill.contracts import wire
from potstill.contracts.capabilities import Capabilities
from potstill.contracts.fingerprint import tokenizer_fingerprint
from potstill.contracts.generation import GenerateRequest, Sampling
from tests.services.student.students import RunningStudent, prompt, wait_until

LONG = 240  # tokens: far more than a test waits for when it is cancelled


def test_it_speaks_json_to_a_person(student: RunningStudent) -> None:
    body = {"prompts": [{"token_ids": [1, 87, 85], "n": 2, "seed": 7}], "sampling": {"max_tokens": 5}, "top_k": 2}
    answer = student.client.post("/v1/generate", json=body).json()
    first, second = answer["prompts"][0]["samples"]
    assert len(first["token_ids"]) == len(first["logprobs"]) == len(first["top_ids"]) == 5
    assert first["token_ids"] != second["token_ids"]
    assert first["finish_reason"] == "length"
    assert first["policy_version"] == 0


def test_msgpack_and_json_carry_the_same_samples(student: RunningStudent) -> None:
    body = {"prompts": [{"token_ids": [1, 87], "n": 1, "seed": 3}], "sampling": {"max_tokens": 6}}
    listed = student.client.post("/v1/generate", json=body).json()["prompts"][0]["samples"][0]
    (sample,) = student.generate(prompt(1, 87, seed=3), max_tokens=6).prompts[0].samples
    assert sample.token_ids.tolist() == listed["token_ids"]
    assert sample.logprobs.tolist() == listed["logprobs"]


def test_prompts_are_answered_in_their_order(student: RunningStudent) -> None:
    prompts = [prompt(1, 80 + index, n=1 + index % 3, seed=index) for index in range(12)]
    together = student.generate(*prompts, max_tokens=8)
    for asked, answered in zip(prompts, together.prompts, strict=True):
        alone = student.generate(asked, max_tokens=8).prompts[0]
        assert [s.token_ids.tolist() for s in alone.samples] == [s.token_ids.tolist() for s in answered.samples]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prompts": []}, "prompts"),
        ({"prompts": [{"token_ids": []}]}, "prompts[0].token_ids"),
        ({"prompts": [{"token_ids": [[1, 2]]}]}, "prompts[0].token_ids"),
        ({"prompts": [{"token_ids": [1]}, {"token_ids": [1, 264]}]}, "prompts[1].token_ids"),
        ({"prompts": [{"token_ids": [-1]}]}, "prompts[0].token_ids"),
        ({"prompts": [{"token_ids": [1], "n": 0}]}, "prompts[0].n"),
        ({"prompts": [{"token_ids": [1], "seed": -1}]}, "prompts[0].seed"),
        ({"sampling": {"max_tokens": 0}}, "sampling.max_tokens"),
        ({"sampling": {"temperature": -0.1}}, "sampling.temperature"),
        ({"sampling": {"stop_token_ids": [264]}}, "sampling.stop_token_ids"),
        ({"sampling": {"top_p": 0.0}}, "sampling.top_p"),
        ({"sampling": {"top_p": 1.1}}, "sampling.top_p"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 65}, "top_k"),
    ],
)
def test_what_cannot_be_done_is_refused_by_field(student: RunningStudent, change: dict[str, Any], field: str) -> None:
    response = student.client.post("/v1/generate", json={"prompts": [{"token_ids": [1]}]} | change)
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == [field]


def test_what_cannot_be_read_is_400(student: RunningStudent) -> None:
    response = student.client.post("/v1/generate", json={"prompts": [{"token_ids": [1.5]}]})
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")


def test_longer_than_the_cache_is_413(student: RunningStudent) -> None:
    at_limit = student.generate(prompt(*[5] * 250), max_tokens=6)
    assert len(at_limit.prompts[0].samples[0].token_ids) == 6
    response = student.post(GenerateRequest((prompt(*[5] * 250),), Sampling(max_tokens=7)))
    assert (response.status_code, response.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize("student", [{"student_max_pending": 10, "student_slots": 2}], indirect=True)
def test_more_than_the_admission_limit_is_503_with_advice(student: RunningStudent) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(student.generate, prompt(1, n=8), max_tokens=LONG)
        wait_until(lambda: student.metric("potstill_student_samples_pending") == 8)
        refused = student.post(GenerateRequest((prompt(1, n=3),)))
        fits = student.post(GenerateRequest((prompt(1, n=2),), Sampling(max_tokens=1)))
        running.result()
    assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
    assert int(refused.headers["retry-after"]) >= 1
    assert fits.is_success
    assert student.post(GenerateRequest((prompt(1, n=11),))).status_code == 413


def test_a_caller_that_hangs_up_frees_its_slots(student: RunningStudent) -> None:
    body = wire.encode(GenerateRequest((prompt(1, n=400),), Sampling(max_tokens=LONG)), wire.JSON)
    head = f"POST /v1/generate HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    url = httpx.URL(student.url)
    steps = student.metric("potstill_student_decode_steps_total")
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.sendall(head + body)
        wait_until(lambda: student.metric("potstill_student_decode_steps_total") > steps)
        assert student.metric("potstill_student_samples_pending") == 400
    wait_until(lambda: student.metric("potstill_student_samples_pending") == 0, seconds=5)
    wait_until(lambda: student.metric("potstill_student_samples_running") == 0, seconds=5)
    assert student.generate(prompt(1), max_tokens=3).prompts[0].samples[0].token_ids.size == 3


def test_capabilities_describe_model_and_limits(student: RunningStudent, tiny_model: Any) -> None:
    known = msgspec.json.decode(student.client.get("/v1/capabilities").content, type=Capabilities)
    assert known.model is not None
    assert known.engine is not None
    assert (known.service, known.engine.name, known.engine.dtype) == ("student", "torch", "float32")
    assert (known.model.id, known.model.vocab_size, known.model.max_length) == (str(tiny_model), 264, 256)
    assert known.model.eos_token_ids == (2,)
    assert known.model.tokenizer == tokenizer_fingerprint((tiny_model / "tokenizer.json").read_text())
    assert known.limits["slots"] == 8
    assert {"top_k", "policy", "lora"} <= set(known.features)


def test_metrics_count_samples_and_tokens(student: RunningStudent) -> None:
    names = ("potstill_student_samples_total", "potstill_student_tokens_total")
    before = [student.metric(name) for name in names]
    student.generate(prompt(1, 2, 3, n=2), max_tokens=5)
    after = [student.metric(name) for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [2, 3 + 2 * 5]
