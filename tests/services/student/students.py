"""Students to test with, and policies for them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from potstill.contracts import wire
from potstill.contracts.arrays import TokenIds
from potstill.contracts.generation import GenerateRequest, GenerateResponse, PolicyRef, Prompt, Sample, Sampling
from potstill.service.serve import serve_in_thread
from services.student.app import build
from services.student.settings import StudentSettings
from tests.tiny_model import write_tiny_model

START_SECONDS = 180.0


def student_settings(model: Path, artifacts: Path, **changes: Any) -> StudentSettings:
    defaults: dict[str, Any] = {"auth": "off", "port": 0, "log_level": "warning"}
    sizes: dict[str, Any] = {"student_slots": 8, "student_max_length": 256, "student_threads": 1}
    return StudentSettings(student_model=str(model), artifacts=artifacts, **(defaults | sizes | changes))


def prompt(*ids: int, n: int = 1, seed: int = 7) -> Prompt:
    return Prompt(TokenIds.of(ids), n=n, seed=seed)


@dataclass(frozen=True)
class RunningStudent:
    """A student behind real HTTP."""

    url: str
    artifacts: Path
    client: httpx.Client

    def generate(self, *prompts: Prompt, policy: PolicyRef | None = None, **sampling: Any) -> GenerateResponse:
        response = self.post(GenerateRequest(prompts, Sampling(**sampling), policy))
        assert response.status_code == httpx.codes.OK, response.text
        return wire.decode(response.content, GenerateResponse)

    def sample(self, policy: PolicyRef | None = None) -> Sample:
        """The first sample of one small request."""
        return self.generate(PROMPT, policy=policy, max_tokens=8).prompts[0].samples[0]

    def refusal(self, policy: PolicyRef) -> tuple[int, str, str]:
        """Status, code and detail."""
        response = self.post(GenerateRequest((PROMPT,), Sampling(max_tokens=8), policy))
        problem = response.json()
        return response.status_code, problem["code"], problem["detail"]

    def post(self, request: GenerateRequest) -> httpx.Response:
        headers = {"content-type": wire.MSGPACK, "accept": wire.MSGPACK}
        return self.client.post("/v1/generate", content=wire.encode(request), headers=headers)

    def metric(self, name: str) -> float:
        lines = self.client.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


PROMPT = prompt(1, 87, 85, 71, n=2)


@contextlib.contextmanager
def running_student(settings: StudentSettings) -> Iterator[RunningStudent]:
    server = serve_in_thread(build(settings), settings)
    wait_until(lambda: server.started)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=60.0) as client:
            wait_until(lambda: client.get("/readyz").is_success)
            yield RunningStudent(url, settings.artifacts, client)
    finally:
        server.should_exit = True
        wait_until(lambda: not server.servers[0].is_serving())


def wait_until(condition: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def policy_folder(policy: PolicyRef) -> Path:
    return Path(policy.uri.removeprefix("file://"))


def publish(artifacts: Path, version: int, *, seed: int, job: str = "job_a") -> PolicyRef:
    """A full policy with other random weights, where a learner would put it."""
    folder = write_tiny_model(artifacts / "jobs" / job / "policies" / f"{version:06d}", seed=seed)
    return PolicyRef(version, folder.as_uri())


def publish_adapter(artifacts: Path, base: Path, version: int, *, rank: int = 4, job: str = "job_l") -> PolicyRef:
    """A LoRA policy with random weights."""
    torch.manual_seed(version)
    config = LoraConfig(r=rank, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    folder = artifacts / "jobs" / job / "policies" / f"{version:06d}"
    adapted.save_pretrained(folder)
    return PolicyRef(version, folder.as_uri())


def load_full(policy: PolicyRef) -> torch.nn.Module:
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(policy_folder(policy))
    return model


def load_adapted(base: Path, policy: PolicyRef) -> torch.nn.Module:
    model: torch.nn.Module = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base), policy_folder(policy)
    )
    return model


def assert_drawn_from(model: torch.nn.Module, drawn: Sample) -> None:
    """That a sample of PROMPT has the log-probabilities of one plain forward pass."""
    start = len(PROMPT.token_ids)
    ids = torch.tensor([[*PROMPT.token_ids.tolist(), *drawn.token_ids.tolist()]])
    with torch.inference_mode():
        logits = model(ids).logits[0, start - 1 : -1]
    expected = torch.log_softmax(logits, -1).gather(1, ids[0, start:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(drawn.logprobs.tolist()), expected, atol=1e-4, rtol=0)
