"""A lane as a real process, a real queue server, and a rollout worker small enough to live in the test."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import peft
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from potstill.broker import Broker
from potstill.broker.jobs import JobRecord, JobStore
from potstill.broker.tickets import TicketQueue
from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.generation import FinishReason
from potstill.contracts.job import JobSpec
from potstill.contracts.ticket import Ticket
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup
from potstill.contracts.verification import Verdict
from tests.tiny_model import EOS_ID

LANE = "default"
Refuse = Callable[[Ticket], str | None]


class TinyRollout:
    """Fulfils tickets with exactly the policy they name, so that a rerun gives equal groups."""

    def __init__(self, student_folder: Path, teacher_folder: Path, *, refuse: Refuse = lambda ticket: None) -> None:
        self.student_folder, self.refuse = student_folder, refuse
        self.tokenizer = AutoTokenizer.from_pretrained(student_folder)
        self.teacher = AutoModelForCausalLM.from_pretrained(teacher_folder)
        self.policies: dict[str, Any] = {}
        self.fulfilled: list[Ticket] = []

    def group(self, ticket: Ticket) -> TrajectoryGroup:
        reason = self.refuse(ticket)
        prompt = self.tokenizer(ticket.problem.prompt[-1].content).input_ids
        samples = () if reason else tuple(self._sample(ticket, prompt, index) for index in range(ticket.n))
        self.fulfilled.append(ticket)
        return TrajectoryGroup(
            ticket=ticket.id,
            problem_id=ticket.problem.id,
            teacher=ticket.teacher,
            prompt_token_ids=TokenIds.of(prompt),
            trajectories=samples,
            issued_at=ticket.issued_at,
            completed_at=time.time(),
            worker="tiny",
            tombstone=reason,
        )

    @torch.no_grad()
    def _sample(self, ticket: Ticket, prompt: list[int], index: int) -> Trajectory:
        generator = torch.Generator().manual_seed(ticket.seed + index)
        model, sampling = self._policy(ticket), ticket.sampling
        ids, logprobs = list(prompt), []
        while len(logprobs) < sampling.max_tokens and (not logprobs or ids[-1] != EOS_ID):
            table = (model(input_ids=torch.tensor([ids])).logits[0, -1] / (sampling.temperature or 1.0)).log_softmax(-1)
            token = int(
                torch.multinomial(table.exp(), 1, generator=generator) if sampling.temperature else table.argmax()
            )
            ids.append(token)
            logprobs.append(float(table[token]))
        response = ids[len(prompt) :]
        right = response[0] % 2 == 0
        return Trajectory(
            token_ids=TokenIds.of(response),
            behaviour_logprobs=LogProbs.of(logprobs),
            finish_reason=FinishReason.STOP if response[-1] == EOS_ID else FinishReason.LENGTH,
            policy_version=ticket.policy.version,
            text=self.tokenizer.decode(response),
            verdict=Verdict.ACCEPTED if right else Verdict.WRONG_ANSWER,
            score=float(right),
            teacher_logprobs=self._score(prompt, response, sampling.temperature) if ticket.teacher else None,
        )

    def _score(self, prompt: list[int], response: list[int], temperature: float) -> LogProbs:
        table = (self.teacher(input_ids=torch.tensor([prompt + response])).logits[0] / temperature).log_softmax(-1)
        return LogProbs.of(table[range(len(prompt) - 1, len(prompt) + len(response) - 1), response].numpy())

    def _policy(self, ticket: Ticket) -> Any:
        uri = ticket.policy.uri
        if uri not in self.policies:
            folder = Path(urlsplit(uri).path)
            if (folder / "adapter_config.json").exists():
                base = AutoModelForCausalLM.from_pretrained(self.student_folder)
                self.policies[uri] = peft.PeftModel.from_pretrained(base, folder)
            else:
                self.policies[uri] = AutoModelForCausalLM.from_pretrained(folder)
        return self.policies[uri]


class Workplace:
    """Runs a `TinyRollout` in a thread until the block ends, and talks to the job store."""

    def __init__(self, url: str, rollout: TinyRollout) -> None:
        self.url, self.rollout = url, rollout
        self.holding = threading.Event()  # set: take no tickets
        self._stopping = threading.Event()
        self._ended = concurrent.futures.Future[None]()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Workplace:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._ended.result()

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _work(self) -> None:
        torch.set_num_threads(1)
        broker = Broker.connect(self.url, patient=True)
        queue = TicketQueue(broker, LANE)
        while not self._stopping.is_set():
            if self.holding.is_set():
                await asyncio.sleep(0.02)
                continue
            # A delivery whose answer died with the server is this worker's own and comes back by its age only.
            held = await queue.take("tiny", 4, block=50) or await queue.claim_idle("tiny", 2.0, 4)
            for delivery in held:
                if await queue.is_open(delivery.ticket.id):
                    await queue.complete(delivery, self.rollout.group(delivery.ticket))
                else:
                    await queue.drop(delivery)
        await broker.close()

    def store(self, call: Callable[[JobStore, Broker], Any]) -> Any:
        """One call on the job store."""

        async def run() -> Any:
            broker = Broker.connect(self.url, patient=True)
            try:
                return await call(JobStore(broker), broker)
            finally:
                await broker.close()

        return asyncio.run(run())

    def submit(self, job_id: str, spec: JobSpec) -> None:
        document = spec.model_dump(mode="json", by_alias=True)
        self.store(lambda store, _: store.create(job_id, document))

    def job(self, job_id: str) -> JobRecord:
        record: JobRecord = self.store(lambda store, _: store.get(job_id))
        return record

    def command(self, job_id: str, verb: str) -> None:
        self.store(lambda store, _: store.command(job_id, verb))

    def wait(self, job_id: str, until: Callable[[JobRecord], bool], seconds: float = 90.0) -> JobRecord:
        deadline = time.monotonic() + seconds
        while not until(record := self.job(job_id)):
            assert not self._ended.done(), f"the worker ended: {self._ended.exception()!r}"
            assert time.monotonic() < deadline, f"still {record}"
            time.sleep(0.05)
        return record

    def wait_for_end(self, job_id: str) -> JobRecord:
        return self.wait(job_id, lambda record: record.state.is_terminal)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def start_learner(
    url: str,
    artifacts: Path,
    *,
    name: str = "learner",
    command: Sequence[str] = ("learner",),
    **environment: str,
) -> subprocess.Popen[bytes]:
    """`python -m learner`, or another module and its arguments, with one thread; the process object has its `port`."""
    port = free_port()
    settings = {
        "POTSTILL_AUTH": "off",
        "POTSTILL_PORT": str(port),
        "POTSTILL_ARTIFACTS": str(artifacts),
        "POTSTILL_REDIS_URL": url,
        "POTSTILL_LEARNER_NAME": name,
        "POTSTILL_LEARNER_THREADS": "1",
        "POTSTILL_LEARNER_DEVICE": "cpu",
        "POTSTILL_LEARNER_POLL_SECONDS": "0.1",
        "POTSTILL_LEARNER_REISSUE_SECONDS": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", *command], env={**os.environ, **settings, **environment}, start_new_session=True
    )
    process.port = port  # type: ignore[attr-defined]
    return process


@contextlib.contextmanager
def learner(url: str, artifacts: Path, **options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A learner that is ended with SIGTERM and must obey."""
    process = start_learner(url, artifacts, **options)
    try:
        yield process
        process.terminate()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def launched(url: str, artifacts: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A learner whose ranks torchrun starts, none of which outlives the block."""
    process = start_learner(url, artifacts, command=("torch.distributed.run", *arguments))
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def exit_of_learner(url: str, artifacts: Path, **options: str) -> int:
    """Run a learner until it ends by itself, and return how; it never outlives the call."""
    process = start_learner(url, artifacts, **options)
    try:
        return process.wait(timeout=90)
    finally:
        process.kill()
        process.wait()


def probe(process: subprocess.Popen[bytes], path: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{process.port}{path}")  # type: ignore[attr-defined]


def write_problems(folder: Path) -> tuple[Path, Path]:
    """A training and a held-out file."""
    train, heldout = folder / "train.jsonl", folder / "heldout.jsonl"
    train.write_text("".join(json.dumps({"prompt": f"{i}+1=", "answer": str(i + 1)}) + "\n" for i in range(7)))
    heldout.write_text("".join(json.dumps({"prompt": f"{i}+2=", "answer": str(i + 2)}) + "\n" for i in range(3)))
    return train, heldout


def tiny_job(folder: Path, student_folder: Path, teacher_folder: Path, **training: Any) -> JobSpec:
    """Five steps of three prompts by two samples; staleness 1, a checkpoint and an evaluation every two steps."""
    train, heldout = write_problems(folder)
    steps = {"steps": 5, "prompts_per_step": 3, "lr": 5e-3, "checkpoint_every": 2, "max_staleness": 1}
    return JobSpec.model_validate(
        {
            "name": "tiny",
            "seed": 11,
            "student": {"model": str(student_folder), "lora": training.pop("lora", None)},
            "teachers": {"maths": {"model": str(teacher_folder)}},
            "data": {"train": str(train), "heldout": str(heldout)},
            "objective": {"preset": training.pop("preset", "opd")},
            "sampling": {"n": 2, "max_tokens": 5},
            "training": {**steps, "micro_batch_tokens": 48, **training},
            "eval": {"every": 2},
            "tracking": ["tensorboard"],
        }
    )
