"""How fast does the vLLM teacher score, and how fast is vLLM without it? `python -m benchmarks.scoring`

Groups of eight responses to one prompt, the same ids for everybody, one contestant after the other, round after round:
the teacher service over HTTP; vLLM's OpenAI server over HTTP and its `LLM.generate`, both with `prompt_logprobs=0`; and
a transformers forward with the full head. All on the same weights, in bfloat16, on all cores, with new ids every round.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx
import numpy as np
import psutil

from benchmarks.figures import Figure, alone, beside, publish
from examples.smollm2.weights import prepare_weights
from potstill.contracts.arrays import TokenIds
from potstill.contracts.scoring import ScoreRequest, Sequence
from potstill.local.stack import HOST, free_ports
from potstill.local.supervisor import ProcessSpec, RestartPolicy, Supervisor
from potstill.service.peers import Peer

TOKEN = "scoring-benchmark-token"
COMMAND = "python -m benchmarks.scoring"
START_SECONDS = 300.0
GROUP_SIZE = 8
MAX_LENGTH = 2048
FIRST_PLAIN_ID, VOCAB_SIZE = 17, 49152
OURS, SERVER, IN_PROCESS, PLAIN = "potstill teacher (vllm)", "vllm openai server", "vllm LLM.generate", "transformers"
THREADS = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}


@dataclass(frozen=True)
class Shape:
    prompt: int
    response: int
    aim: float

    def __str__(self) -> str:
        return f"prompt {self.prompt}, response {self.response}"

    def group(self, seed: int) -> list[Sequence]:
        rng = np.random.default_rng([seed, self.prompt])
        prompt, *responses = (
            TokenIds.of(rng.integers(FIRST_PLAIN_ID, VOCAB_SIZE, length))
            for length in (self.prompt, *[self.response] * GROUP_SIZE)
        )
        return [Sequence(prompt, response) for response in responses]


SHAPES = (Shape(32, 256, 1.3), Shape(512, 64, 3.0), Shape(1024, 32, 6.0))

Scores = list[np.ndarray]  # [T] of each sequence


class Contestant(Protocol):
    name: str

    def score(self, group: list[Sequence]) -> Scores:
        """Log-probabilities of the response tokens at temperature 1."""

    def processes(self) -> list[psutil.Process]:
        """Everything whose memory it takes."""


@dataclass
class Teacher:
    """Our service."""

    process: psutil.Process
    url: str
    loop: asyncio.AbstractEventLoop
    name: str = OURS
    token: str = TOKEN

    def __post_init__(self) -> None:
        self._peer = Peer(self.url, self.token)

    def score(self, group: list[Sequence]) -> Scores:
        answer = self.loop.run_until_complete(self._peer.score(ScoreRequest(tuple(group))))
        return [np.asarray(score.logprobs) for score in answer.sequences]

    def processes(self) -> list[psutil.Process]:
        return _tree(self.process)


@dataclass
class OpenAiServer:
    """`python -m vllm.entrypoints.openai.api_server`, asked for completions of one token."""

    process: psutil.Process
    url: str
    model: str
    name: str = SERVER

    def score(self, group: list[Sequence]) -> Scores:
        body = {"model": self.model, "prompt": [_ids(s) for s in group], "max_tokens": 1, "temperature": 0.0}
        answer = httpx.post(f"{self.url}/v1/completions", json=body | {"prompt_logprobs": 0}, timeout=300)
        choices = sorted(answer.raise_for_status().json()["choices"], key=lambda choice: choice["index"])
        return [
            np.array([entries[str(token)]["logprob"] for token, entries in _of_response(s, choice["prompt_logprobs"])])
            for s, choice in zip(group, choices, strict=True)
        ]

    def processes(self) -> list[psutil.Process]:
        return _tree(self.process)


class InProcess:
    """`vllm.LLM`, whose engine is a child of this process."""

    name = IN_PROCESS

    def __init__(self, model: Path) -> None:
        os.environ.update(THREADS)
        from vllm import LLM, SamplingParams

        before = set(_tree(psutil.Process()))
        options = {"dtype": "bfloat16", "max_model_len": MAX_LENGTH, "enforce_eager": True}
        self._llm = LLM(str(model), kv_cache_memory_bytes=2**30, **options)
        self._parameters = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
        self._processes = [child for child in _tree(psutil.Process()) if child not in before]

    def score(self, group: list[Sequence]) -> Scores:
        prompts = [{"prompt_token_ids": _ids(s)} for s in group]
        outputs = self._llm.generate(prompts, self._parameters, use_tqdm=False)
        return [
            np.array([entries[token].logprob for token, entries in _of_response(s, output.prompt_logprobs)])
            for s, output in zip(group, outputs, strict=True)
        ]

    def processes(self) -> list[psutil.Process]:
        return self._processes

    def close(self) -> None:
        """Left alone, its engine would keep this process from ending."""
        self._llm.llm_engine.engine_core.shutdown(timeout=10.0)


class Transformers:
    """The model's own forward of each whole sequence, and a log-softmax of all its logits."""

    name = PLAIN

    def __init__(self, model: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self._torch = torch
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()

    def score(self, group: list[Sequence]) -> Scores:
        torch, scores = self._torch, []
        with torch.inference_mode():
            for s in group:
                ids = torch.tensor([_ids(s)])
                logprobs = self._model(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
                chosen = logprobs.gather(-1, ids[0, 1:, None])[:, 0]
                scores.append(chosen[len(s.prompt_token_ids) - 1 :].numpy())
        return scores

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process()]


def _ids(sequence: Sequence) -> list[int]:
    return [*sequence.prompt_token_ids.tolist(), *sequence.response_token_ids.tolist()]


def _of_response(sequence: Sequence, entries: list[Any]) -> Iterator[tuple[int, Any]]:
    tokens = sequence.response_token_ids.tolist()
    return zip(tokens, entries[-len(tokens) :], strict=True)


def _tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _resident_mib(processes: list[psutil.Process], field: str) -> float:
    """`VmRSS` now or `VmHWM`, the peak since it was last reset, of all together; pages they share count for each."""
    total = 0
    for process in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
    return total / 1024


def _forget_peak(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")


@contextlib.contextmanager
def contestants(model: Path) -> Iterator[list[Contestant]]:
    """All of them, started and ready."""
    ports = free_ports(["teacher", "server"])
    urls = {name: f"http://{HOST}:{port}" for name, port in ports.items()}
    loop = asyncio.new_event_loop()
    own = {"ENGINE": "vllm", "MODEL": str(model), "DTYPE": "bfloat16", "MAX_LENGTH": str(MAX_LENGTH)}
    own["SCORE_CACHE_BYTES"] = "0"
    flags = f"--dtype bfloat16 --max-model-len {MAX_LENGTH} --enforce-eager --host {HOST} --port {ports['server']}"
    with tempfile.TemporaryDirectory() as folder:
        supervisor = Supervisor(Path(folder) / "logs", RestartPolicy())
        try:
            environment = {f"POTSTILL_TEACHER_{key}": value for key, value in own.items()} | THREADS
            environment |= {"POTSTILL_PORT": str(ports["teacher"]), "POTSTILL_TOKEN": TOKEN}
            supervisor.start(ProcessSpec("teacher", (sys.executable, "-m", "services.teacher"), environment))
            server = (sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), *flags.split())
            supervisor.start(ProcessSpec("server", server, THREADS | {"VLLM_CPU_KVCACHE_SPACE": "1"}))
            _wait(f"{urls['teacher']}/readyz")
            _wait(f"{urls['server']}/health")
            running = {name: _process_on(port) for name, port in ports.items()}
            with contextlib.closing(InProcess(model)) as in_process:
                yield [
                    Teacher(running["teacher"], urls["teacher"], loop),
                    OpenAiServer(running["server"], urls["server"], str(model)),
                    in_process,
                    Transformers(model),
                ]
        finally:
            supervisor.stop()
            loop.close()


def _wait(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            if httpx.get(url, timeout=10).status_code == 200:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"{url} does not answer")
        time.sleep(0.5)


def _process_on(port: int) -> psutil.Process:
    found = next(c.pid for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.laddr.port == port)
    return psutil.Process(found)


@dataclass(frozen=True)
class Measured:
    seconds: dict[tuple[str, Shape], list[float]]
    rest_mib: dict[str, float]
    peak_mib: dict[str, float]
    difference: dict[str, float]  # mean |ours - theirs| of a log-probability


def measure(running: list[Contestant], rounds: int, seconds_left: Callable[[], float]) -> Measured:
    """Interleaved rounds, the order turning; ends early when time is up, after two rounds at least."""
    seconds: dict[tuple[str, Shape], list[float]] = defaultdict(list)
    differences: dict[str, list[float]] = defaultdict(list)
    for contestant in running:
        contestant.score(Shape(48, 16, 0).group(0))
    rest = {each.name: _resident_mib(each.processes(), "VmRSS") for each in running}
    for each in running:
        _forget_peak(each.processes())
    for number in range(rounds):
        begun = time.monotonic()
        for shape in SHAPES:
            group = shape.group(1 + number)
            answers = {}
            for each in _turned(running, number):
                start = time.perf_counter()
                answers[each.name] = each.score(group)
                seconds[each.name, shape].append(time.perf_counter() - start)
            for name, scores in answers.items():
                apart = [np.abs(a - b).mean() for a, b in zip(answers[OURS], scores, strict=True)]
                differences[name].append(float(np.mean(apart)))
        print(f"round {number + 1}: {time.monotonic() - begun:.0f} s", flush=True)
        if number and seconds_left() < time.monotonic() - begun:
            break
    peak = {each.name: _resident_mib(each.processes(), "VmHWM") for each in running}
    return Measured(seconds, rest, peak, {name: float(np.mean(values)) for name, values in differences.items()})


def _turned(running: list[Contestant], number: int) -> list[Contestant]:
    shift = number % len(running)
    return running[shift:] + running[:shift]


def figures(measured: Measured) -> Iterator[Figure]:
    note = (
        "SmolLM2-135M-Instruct in bfloat16, new random ids every round, no kept answers. Memory is that of all "
        "processes of a side; the peer's logits are rounded to bfloat16, ours are not."
    )
    for shape in SHAPES:
        for name in (SERVER, IN_PROCESS, PLAIN):
            ours, theirs = (
                [GROUP_SIZE * shape.response / seconds for seconds in measured.seconds[side, shape]]
                for side in (OURS, name)
            )
            aim = f"{shape.aim:g}" if name == SERVER else None
            yield beside(f"scoring, {shape}", ours, theirs, name, "response tokens/s", COMMAND, aim=aim, note=note)
    for name in (SERVER, IN_PROCESS):
        grown = ([measured.peak_mib[side] - measured.rest_mib[side]] for side in (OURS, name))
        yield beside("peak memory above rest", *grown, name, "MiB", COMMAND)
        yield alone(f"mean difference to {name}", [measured.difference[name]], "nats", COMMAND)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=330.0, help="begin no round that would end later")
    given = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with contestants(prepare_weights().resolve()) as running:
        end = time.monotonic() + given.seconds
        measured = measure(running, given.rounds, lambda: end - time.monotonic())
    publish(list(figures(measured)))


if __name__ == "__main__":
    main()
