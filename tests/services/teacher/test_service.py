"""The process around the engine: probes, capabilities, hang-ups, start and end."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from potstill.contracts import wire
from potstill.contracts.capabilities import Capabilities
from potstill.contracts.scoring import ScoreRequest
from services.teacher.engine import ENGINES, EngineFacts
from services.teacher.torch_engine import TorchEngine
from tests.services.teacher import reference
from tests.services.teacher.conftest import START_SECONDS, TeacherClient, started_teacher
from tests.services.teacher.processes import free_port, process, wait_until_answering


def test_capabilities_describe_the_model(client: TeacherClient, model: Path) -> None:
    known = wire.decode(client.http.get("/v1/capabilities").content, Capabilities, wire.JSON)
    assert known.service == "teacher"
    assert known.model is not None
    assert known.engine is not None
    assert known.model.id == str(model.resolve())
    assert known.model.vocab_size == reference.VOCAB_SIZE
    assert known.model.eos_token_ids == (2,)
    assert known.model.max_length == 512
    assert re.fullmatch("sha256:[0-9a-f]{64}", known.model.tokenizer)
    assert known.engine.name == "torch"
    assert known.engine.dtype == "float32"
    assert set(known.features) == {"logprobs", "temperature", "candidate_ids", "top_k", "entropy"}


class _GatedEngine(TorchEngine):
    """The torch engine, loading no sooner than it is told to."""

    gate = threading.Event()

    async def start(self) -> EngineFacts:
        await asyncio.to_thread(self.gate.wait)
        return await super().start()


def test_liveness_is_served_while_the_model_loads_and_work_is_not(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "gated", _GatedEngine)
    with started_teacher(teacher_model=str(model), teacher_engine="gated") as client:
        assert client.http.get("/livez").status_code == 200
        for answer in (
            client.http.get("/readyz"),
            client.http.get("/v1/capabilities"),
            client.http.post("/v1/score", json={"sequences": []}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (503, "loading")
            assert answer.headers["retry-after"]
        _GatedEngine.gate.set()
        client.wait_ready()
        assert client.http.get("/livez").status_code == 200
        assert client.post(ScoreRequest(())).status_code == 200


def test_a_model_that_cannot_be_loaded_fails_the_probes_with_the_reason(tmp_path: Path) -> None:
    with started_teacher(teacher_model=str(tmp_path)) as client:
        deadline = time.monotonic() + START_SECONDS
        while (answer := client.http.get("/livez")).status_code == 200:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert (answer.status_code, answer.json()["code"]) == (503, "model_load_failed")
        assert "POTSTILL_TEACHER_MODEL" in answer.json()["detail"]


def test_a_caller_that_hangs_up_frees_its_place(model: Path, other_teacher) -> None:
    request = ScoreRequest(tuple(s for seed in range(200) for s in reference.group(seed, 300, [100, 100])))
    with other_teacher(model) as teacher:
        with pytest.raises(httpx.ReadTimeout):
            teacher.http.post("/v1/score", content=wire.encode(request, wire.JSON), timeout=0.3)
        deadline = time.monotonic() + 5
        while teacher.metric("potstill_teacher_requests_running"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert teacher.post(ScoreRequest(reference.group(1, 5, [3]))).status_code == 200


def test_tokens_and_sequences_are_counted(client: TeacherClient) -> None:
    response = 'potstill_teacher_tokens_total{kind="response"}'
    before = client.metric("potstill_teacher_sequences_total"), client.metric(response)
    client.score(ScoreRequest(reference.group(4, 10, [3, 9])))
    assert client.metric("potstill_teacher_sequences_total") - before[0] == 2
    assert client.metric(response) - before[1] == 12


class TestProcess:
    def test_work_in_flight_is_answered_after_sigterm(self, model: Path) -> None:
        port = free_port()
        request = ScoreRequest(tuple(s for seed in range(30) for s in reference.group(seed, 300, [100, 100])))
        with (
            process(port, POTSTILL_TEACHER_MODEL=str(model), POTSTILL_AUTH="off") as running,
            ThreadPoolExecutor(1) as pool,
        ):
            client = TeacherClient(f"http://127.0.0.1:{port}")
            wait_until_answering(client, running)
            client.wait_ready()
            answer = pool.submit(TeacherClient(f"http://127.0.0.1:{port}").score, request)
            while not client.metric("potstill_teacher_requests_running"):
                time.sleep(0.01)
            running.send_signal(signal.SIGTERM)
            assert len(answer.result().sequences) == 60
            assert running.wait(30) in (0, -signal.SIGTERM)  # uvicorn repeats the signal once it is done

    def test_an_unknown_engine_is_one_line(self, model: Path) -> None:
        variables = {"POTSTILL_TEACHER_MODEL": str(model), "POTSTILL_AUTH": "off", "POTSTILL_TEACHER_ENGINE": "abacus"}
        with process(0, **variables) as running:
            assert running.wait(60) == 2
            assert running.stderr is not None
            assert running.stderr.read().splitlines()[-1].startswith("potstill: POTSTILL_TEACHER_ENGINE: 'abacus'")
