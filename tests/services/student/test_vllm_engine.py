"""What the torch engine promises, except batch invariance, holds for vLLM as well. One engine serves all tests."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from potstill.contracts.generation import FinishReason, GenerateRequest, Sampling
from tests.services.student.students import (
    RunningStudent,
    assert_drawn_from,
    load_adapted,
    load_full,
    policy_folder,
    prompt,
    publish,
    publish_adapter,
    running_student,
    student_settings,
    wait_until,
)
from tests.tiny_model import write_tiny_model

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]

IDS = (1, 87, 85, 71, 84, 201)
STOPS = tuple(range(0, 264, 16))


@pytest.fixture(scope="module")
def vllm_student(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudent]:
    artifacts = tmp_path_factory.mktemp("artifacts")
    with running_student(student_settings(tiny_model, artifacts, student_engine="vllm")) as student:
        yield student


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_log_probabilities_are_at_the_sampling_temperature(
    vllm_student: RunningStudent, tiny_model: Path, temperature: float
) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    response = vllm_student.generate(prompt(*IDS, n=8), temperature=temperature, max_tokens=40, stop_token_ids=STOPS)
    reasons = set()
    for sample in response.prompts[0].samples:
        ids = torch.tensor([[*IDS, *sample.token_ids.tolist()]])
        with torch.inference_mode():
            logits = model(ids).logits[0, len(IDS) - 1 : -1]
        logprobs = torch.log_softmax(logits / (temperature or 1.0), -1)
        expected = logprobs.gather(1, ids[0, len(IDS) :, None])[:, 0]
        np.testing.assert_allclose(sample.logprobs, expected.numpy(), atol=1e-3)
        if temperature == 0:
            assert sample.token_ids.tolist() == logprobs.argmax(-1).tolist()
        assert (sample.token_ids[-1] in STOPS) == (sample.finish_reason is FinishReason.STOP)
        reasons.add(sample.finish_reason)
    assert FinishReason.STOP in reasons or temperature == 0


def test_the_seed_decides_the_samples(vllm_student: RunningStudent) -> None:
    def ids(seed: int) -> list[list[int]]:
        response = vllm_student.generate(prompt(*IDS, n=4, seed=seed), max_tokens=12)
        return [sample.token_ids.tolist() for sample in response.prompts[0].samples]

    assert ids(3) == ids(3)
    assert not {tuple(sample) for sample in ids(3)} & {tuple(sample) for sample in ids(4)}


def test_top_k_are_the_largest_in_order(vllm_student: RunningStudent, tiny_model: Path) -> None:
    response = vllm_student.client.post(
        "/v1/generate",
        json={"prompts": [{"token_ids": IDS}], "sampling": {"temperature": 0.8, "max_tokens": 9}, "top_k": 5},
    )
    sample = response.json()["prompts"][0]["samples"][0]
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    with torch.inference_mode():
        logits = model(torch.tensor([[*IDS, *sample["token_ids"]]])).logits[0, len(IDS) - 1 : -1]
    values, ids = torch.log_softmax(logits / 0.8, -1).topk(5)
    assert sample["top_ids"] == ids.tolist()
    np.testing.assert_allclose(sample["top_logprobs"], values.numpy(), atol=1e-3)


def test_full_policies_and_adapters_take_turns(vllm_student: RunningStudent, tiny_model: Path) -> None:
    for version in (1, 2):
        full = publish(vllm_student.artifacts, version, seed=10 + version)
        drawn = vllm_student.sample(full)
        assert drawn.policy_version == version
        assert_drawn_from(load_full(full), drawn)
        adapter = publish_adapter(vllm_student.artifacts, tiny_model, version)
        drawn = vllm_student.sample(adapter)
        assert drawn.policy_version == version
        assert_drawn_from(load_adapted(tiny_model, adapter), drawn)
        newer = publish_adapter(vllm_student.artifacts, tiny_model, 10 + version)
        assert_drawn_from(load_adapted(tiny_model, newer), vllm_student.sample(newer))


def test_what_cannot_be_loaded_leaves_the_old_weights_serving(
    vllm_student: RunningStudent, tiny_model: Path, tmp_path: Path
) -> None:
    good = publish(vllm_student.artifacts, 1, seed=11, job="job_good")
    before = vllm_student.sample(good)
    wider = write_tiny_model(tmp_path / "wider", hidden=96)
    cut = publish(vllm_student.artifacts, 2, seed=22, job="job_good")
    weights = policy_folder(cut) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    for bad in (
        cut,
        publish_adapter(vllm_student.artifacts, wider, 3, job="job_bad"),
        publish_adapter(vllm_student.artifacts, tiny_model, 4, job="job_bad", rank=65),
    ):
        status, code, detail = vllm_student.refusal(bad)
        assert (status, code) == (502, "policy_load_failed")
        assert f"policy {bad.version} " in detail
        assert "policy 1 " in detail
        after = vllm_student.sample(good)
        assert (after.policy_version, after.token_ids.tolist()) == (1, before.token_ids.tolist())


def test_sixteen_requests_at_once_load_once(vllm_student: RunningStudent) -> None:
    policy = publish(vllm_student.artifacts, 5, seed=55, job="job_many")
    loads = vllm_student.metric("potstill_student_policy_swaps_total")
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        drawn = list(pool.map(lambda _: vllm_student.sample(policy), range(16)))
    assert {item.policy_version for item in drawn} == {5}
    assert vllm_student.metric("potstill_student_policy_swaps_total") == loads + 1


def test_a_caller_that_hangs_up_frees_the_engine(vllm_student: RunningStudent) -> None:
    request = GenerateRequest((prompt(1, n=300),), Sampling(max_tokens=240))
    with httpx.Client(base_url=vllm_student.url, timeout=0.5) as impatient, pytest.raises(httpx.ReadTimeout):
        RunningStudent(vllm_student.url, vllm_student.artifacts, impatient).post(request)
    wait_until(lambda: vllm_student.metric("potstill_student_samples_pending") == 0, seconds=10)
    begun = time.monotonic()
    vllm_student.sample(publish(vllm_student.artifacts, 1, seed=12, job="job_next"))  # waits for all that still runs
    assert time.monotonic() - begun < 10


def test_when_the_engine_dies_the_service_is_not_live(vllm_student: RunningStudent) -> None:
    """The last test of this module: it ends the engine."""
    (engine,) = multiprocessing.active_children()
    engine.kill()
    wait_until(lambda: vllm_student.client.get("/livez").status_code == 503, seconds=30)
    assert vllm_student.client.get("/livez").json()["code"] == "engine_dead"
    assert (
        not vllm_student.client.get("/readyz").is_success
        or vllm_student.post(GenerateRequest((prompt(1),))).status_code == 503
    )
