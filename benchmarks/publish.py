"""From the learner's weights to a student that answers with them: `python -m benchmarks.publish`

The learner's own code writes a policy; a student service is asked for one token of at least that version. Beside it, in
turn, the time to read the written file into memory. Every version has other weights.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path

import torch

from benchmarks.figures import Figure, alone, beside, publish
from benchmarks.processes import TOKEN, Service, running
from examples.smollm2.weights import prepare_weights
from learner.model import Student, load_student
from learner.policy import Policies
from learner.sharding import weights
from potstill.contracts.arrays import TokenIds
from potstill.contracts.generation import GenerateRequest, Prompt, Sampling
from potstill.contracts.job import LoraSpec, StudentSpec
from potstill.service.peers import Peer

COMMAND = "python -m benchmarks.publish"
ROOT = Path("artifacts")
KINDS = {"full weights": None, "LoRA of rank 16": LoraSpec(rank=16, alpha=32)}


class Loop:
    """One policy after the other."""

    def __init__(self, student: Student, policies: Policies, peer: Peer, runner: asyncio.Runner) -> None:
        self.student, self.policies, self.peer, self.runner = student, policies, peer, runner
        self.version = 0

    def once(self) -> dict[str, float]:
        """Seconds to write, to be served, and to read the file."""
        self.version += 1
        with torch.no_grad():
            for parameter in self.student.trainable():
                parameter.add_(1e-4)
        begun = time.perf_counter()
        self.policies.publish(self.version, self.student, weights(self.student))
        written = time.perf_counter()
        reference = self.policies.reference(self.version)
        prompt = Prompt(TokenIds.of([17, 18, 19]))
        request = GenerateRequest((prompt,), Sampling(max_tokens=1), reference)
        answer = self.runner.run(self.peer.generate(request))
        served = time.perf_counter()
        assert answer.prompts[0].samples[0].policy_version == self.version
        (file,) = Path(reference.uri.removeprefix("file://")).glob("*.safetensors")
        reading = time.perf_counter()
        file.read_bytes()
        return {"write": written - begun, "serve": served - written, "read": time.perf_counter() - reading}


def measure(model: Path, engine: str, dtype: str, rounds: int) -> list[Figure]:
    found: list[Figure] = []
    ROOT.mkdir(exist_ok=True)
    with running(ROOT) as services, asyncio.Runner() as runner:
        threads = str(len(os.sched_getaffinity(0)))
        settings = {
            "STUDENT_ENGINE": engine,
            "STUDENT_MODEL": str(model),
            "STUDENT_DTYPE": dtype,
            "STUDENT_MAX_LENGTH": "512",
            "STUDENT_THREADS": threads,
            "ARTIFACTS": str(services.folder),
        }
        peer = Peer(services.start({"student": Service("services.student", settings)})["student"], TOKEN)
        for kind, lora in KINDS.items():
            spec = StudentSpec(model=str(model), dtype=dtype, lora=lora)
            student = load_student(spec, seed=0, device=torch.device("cpu"))
            folder = services.folder / "jobs" / f"job_{len(found)}" / "policies"
            loop = Loop(student, Policies(folder, max_staleness=0), peer, runner)
            loop.once()  # the first of a family also loads what stays
            found += figures(f"{kind}, {dtype}, {engine} engine", [loop.once() for _ in range(rounds)])
        runner.run(peer.close())
    return found


def figures(name: str, told: list[dict[str, float]]) -> list[Figure]:
    write, serve, read = ([each[part] for each in told] for part in ("write", "serve", "read"))
    both = [a + b for a, b in zip(write, serve, strict=True)]
    return [
        beside(f"to be served, {name}", serve, read, "reading the file", "seconds", COMMAND, aim="0.5"),
        beside(f"to write and to be served, {name}", both, read, "reading the file", "seconds", COMMAND, aim="0.5"),
        alone(f"of it writing, {name}", write, "seconds", COMMAND),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", choices=("torch", "vllm"), default="torch")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    given = parser.parse_args()
    model = prepare_weights().resolve()
    publish(measure(model, given.engine, given.dtype, given.rounds))


if __name__ == "__main__":
    main()
