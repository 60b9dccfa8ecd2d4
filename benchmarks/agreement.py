"""Does a teacher that is the student agree with it? `python -m benchmarks.agreement`

The student samples at temperature 1 over HTTP, the teacher with the same weights scores those ids over HTTP, and d is
the difference of the two log-probabilities at every response position, the end token included. On-policy distillation
trains on d, so whatever the engines add to it is noise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from transformers import AutoTokenizer

from benchmarks.machine import machine_facts
from examples.smollm2.tasks import TASKS, split
from examples.smollm2.weights import prepare_weights
from potstill.contracts.arrays import TokenIds
from potstill.contracts.generation import FinishReason, GenerateRequest, Prompt, Sampling
from potstill.contracts.scoring import ScoreRequest, Sequence
from potstill.local.stack import HOST, free_ports
from potstill.local.supervisor import ProcessSpec, RestartPolicy, Supervisor
from potstill.service.peers import Peer, PeerUnavailableError

TOKEN = "agreement-benchmark-token"
START_SECONDS = 300.0
RESULTS = Path("docs/results")


@dataclass(frozen=True)
class Agreement:
    """|d| in nats over all response positions."""

    engine: str
    dtype: str
    samples: int
    positions: int
    ends: int  # positions that hold an end token
    mean: float
    maximum: float
    maximum_at_ends: float
    missing: int


@contextmanager
def student_and_teacher(model: Path, engine: str, dtype: str) -> Iterator[dict[str, str]]:
    """Base URLs of both services, running the same weights."""
    ports = free_ports(["student", "teacher"])
    with tempfile.TemporaryDirectory() as folder:
        supervisor = Supervisor(Path(folder) / "logs", RestartPolicy())
        try:
            for name, port in ports.items():
                own = {"ENGINE": engine, "MODEL": str(model), "DTYPE": dtype, "MAX_LENGTH": "512", "THREADS": "2"}
                environment = {f"POTSTILL_{name.upper()}_{key}": value for key, value in own.items()}
                environment |= {"POTSTILL_PORT": str(port), "POTSTILL_TOKEN": TOKEN, "POTSTILL_ARTIFACTS": folder}
                supervisor.start(ProcessSpec(name, (sys.executable, "-m", f"services.{name}"), environment))
            yield {name: f"http://{HOST}:{port}" for name, port in ports.items()}
        finally:
            supervisor.stop()


async def _ready(peer: Peer) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return await peer.ready()
        except PeerUnavailableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)


async def compare(urls: dict[str, str], prompts: list[TokenIds], n: int, max_tokens: int) -> list[np.ndarray]:
    """For each sample, rows of (d, whether the position holds the end token)."""
    student, teacher = Peer(urls["student"], TOKEN), Peer(urls["teacher"], TOKEN)
    await asyncio.gather(_ready(student), _ready(teacher))
    known = await student.capabilities()
    assert known.model is not None
    sampling = Sampling(1.0, max_tokens, known.model.eos_token_ids)
    request = GenerateRequest(tuple(Prompt(ids, n, seed) for seed, ids in enumerate(prompts)), sampling)
    generated = await student.generate(request)
    compared = []
    for ids, answer in zip(prompts, generated.prompts, strict=True):
        scored = await teacher.score(ScoreRequest(tuple(Sequence(ids, s.token_ids) for s in answer.samples)))
        for sample, score in zip(answer.samples, scored.sequences, strict=True):
            ends = np.zeros(len(sample.token_ids), dtype=bool)
            ends[-1] = sample.finish_reason is FinishReason.STOP
            compared.append(np.stack([np.asarray(score.logprobs) - np.asarray(sample.logprobs), ends], axis=1))
    await student.close()
    await teacher.close()
    return compared


def measure(model: Path, engine: str, dtype: str, *, num_prompts: int = 12, n: int = 4) -> Agreement:
    """Start both services, sample, score and compare."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    rows, _ = split(TASKS["words"], num_train=num_prompts, num_heldout=1, seed=0)
    turns = [[{"role": "user", "content": f"{row.prompt} Answer with one number."}] for row in rows]
    prompts = [
        TokenIds.of(tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False))
        for turn in turns
    ]
    with student_and_teacher(model, engine, dtype) as urls:
        compared = asyncio.run(compare(urls, prompts, n, max_tokens=96))
    table = np.concatenate(compared)
    size, ends = np.abs(table[:, 0]), table[:, 1] == 1
    missing = int(np.isnan(size).sum())
    return Agreement(
        engine,
        dtype,
        len(compared),
        len(size),
        int(ends.sum()),
        float(np.nanmean(size)),
        float(np.nanmax(size)),
        float(np.nanmax(size[ends], initial=0.0)),
        missing,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=["torch", "vllm"])
    given = parser.parse_args()
    model = prepare_weights()
    found = [measure(model, engine, dtype) for engine in given.engines for dtype in ("float32", "bfloat16")]
    rows = [
        f"| {a.engine} | {a.dtype} | {a.samples} | {a.positions} | {a.ends} | {a.mean:.2e} | {a.maximum:.2e} "
        f"| {a.maximum_at_ends:.2e} | {a.missing} |"
        for a in found
    ]
    facts = machine_facts()
    lines = [
        "# A teacher that is the student",
        "",
        "The same weights (SmolLM2-135M-Instruct) in both services, samples at temperature 1, everything over HTTP.",
        "d is the teacher's less the student's log-probability of a sampled token, in nats; shown is its size.",
        "",
        "| engine | dtype | samples | positions | end tokens | mean of d | largest | largest at an end | missing |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        "Command: `python -m benchmarks.agreement`",
        "",
        f"Machine: {', '.join(f'{key} {value}' for key, value in facts.items())}.",
        "",
    ]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "agreement.md").write_text("\n".join(lines))
    document = {"machine": facts, "agreement": [asdict(a) for a in found]}
    (RESULTS / "agreement.json").write_text(json.dumps(document, indent=2) + "\n")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
