"""How many samples a second are generated, scored and learned from? `python -m benchmarks.end_to_end`

The whole local stack, with rollout and learning overlapping (max_staleness 1), beside TRL's DistillationTrainer, which
generates with transformers in the same process: the same model, prompts, samples a step, response length and type of
numbers, on all cores. They take turns and are never busy at the same time. Steps in full swing are timed: the first two
of a job and its last are left out, and TRL's first. Starting up is told beside it.

TRL lives in an environment of its own: `POTSTILL_TRL_PYTHON`, or made on first use.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.figures import Figure, alone, beside, publish
from benchmarks.learner import THREADS, TRL, Contestant, started, trl_python
from benchmarks.watched import Step, Watched, WatchedStack, seconds_of, watch
from benchmarks.watched import started as stack_started
from examples.smollm2.weights import prepare_weights
from potstill.contracts.job import JobSpec
from potstill.local.stack import StackSpec, TeacherProcess
from potstill.local.threads import Threads

COMMAND = "python -m benchmarks.end_to_end"
ROOT = Path(__file__).parents[1]
WARM_UP, COOL_DOWN = 2, 1  # steps of a job; while the last one is learned from, nothing is sampled
NEVER_SAMPLED = 15  # a special token of the vocabulary: a response ends where its length ends
AIM = "3"


@dataclass(frozen=True)
class Shape:
    """What is asked of both sides in a step."""

    numbers: int  # in a prompt: 4 tokens each, beside 38
    max_tokens: int = 64
    prompts: int = 2
    n: int = 4
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"prompt {38 + 4 * self.numbers}, response {self.max_tokens}, {self.dtype}"

    @property
    def samples(self) -> int:
        return self.prompts * self.n

    def texts(self, count: int) -> list[str]:
        generator = random.Random(0)
        rows = [[str(generator.randint(10, 99)) for _ in range(self.numbers)] for _ in range(count)]
        return [f"Which of these numbers is the largest: {', '.join(row)}?" for row in rows]


SHAPES = (Shape(24), Shape(24, dtype="bfloat16"))


@dataclass
class Told:
    """What one shape's rounds told."""

    ours: list[Step] = field(default_factory=list)
    theirs: list[dict[str, float]] = field(default_factory=list)
    round_ours: list[float] = field(default_factory=list)  # samples a second
    round_theirs: list[float] = field(default_factory=list)
    start_ours: list[float] = field(default_factory=list)  # seconds to the end of the first step
    start_theirs: list[float] = field(default_factory=list)
    watched: list[Watched] = field(default_factory=list)


def job_spec(shape: Shape, model: Path, folder: Path, steps: int) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "end-to-end",
            "student": {"model": str(model), "dtype": shape.dtype},
            "teachers": {"self": {"model": str(model)}},
            "data": {"train": str(folder / "train.jsonl"), "kind": "exact"},
            "objective": {"preset": "opd"},
            "sampling": {"n": shape.n, "max_tokens": shape.max_tokens, "stop_token_ids": [NEVER_SAMPLED]},
            "training": {"steps": steps, "prompts_per_step": shape.prompts, "checkpoint_every": steps},
            "eval": {"every": 0},
        }
    )


def stack_spec(shape: Shape, model: Path, folder: Path) -> StackSpec:
    return StackSpec(
        artifacts=folder / "artifacts",
        student_model=str(model),
        teachers={"self": TeacherProcess(str(model), shape.dtype)},
        threads=Threads.split(THREADS, overlapping=True),
        max_length=512,
        data_roots=(folder,),
    )


def write_rows(shape: Shape, folder: Path, steps: int) -> None:
    """The same prompts for both sides; TRL takes one sample of a row, so it gets each prompt `n` times."""
    texts = shape.texts(shape.prompts * steps)
    rows = [{"prompt": text, "answer": "0"} for text in texts]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    repeated = [row for row in rows for _ in range(shape.n)]
    (folder / "trl.jsonl").write_text("".join(json.dumps(row) + "\n" for row in repeated))


def trl_command(shape: Shape, model: Path, folder: Path) -> list[str]:
    options = {
        "--dtype": shape.dtype,
        "--samples": shape.samples,
        "--micro-batch": min(8, shape.samples),
        "--max-tokens": shape.max_tokens,
        "--threads": THREADS,
    }
    given = [str(part) for option in options.items() for part in option]
    return [trl_python(), "-P", "-m", "benchmarks.trl_training", str(model), str(folder / "trl.jsonl"), *given]


def measure(shape: Shape, model: Path, rounds: int, steps: int) -> Told:
    """`rounds` times: `steps` steps in full swing of ours, then of TRL's."""
    told = Told()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(dir="artifacts"))).resolve()
        total = WARM_UP + steps + COOL_DOWN
        write_rows(shape, folder, total)
        stack, ready = opened.enter_context(stack_started(stack_spec(shape, model, folder)))
        begun = time.monotonic()
        trl = opened.enter_context(started(trl_command(shape, model, folder), PYTHONPATH=str(ROOT)))
        trl.ask({"steps": 1})
        told.start_theirs.append(time.monotonic() - begun)
        for number in range(rounds):
            sides = [lambda: ours(stack, shape, model, folder, total, told), lambda: theirs(trl, shape, steps, told)]
            for side in sides if number % 2 == 0 else reversed(sides):
                side()
            print(shape, told.round_ours[-1], told.round_theirs[-1], file=sys.stderr, flush=True)
        told.start_ours.append(ready + told.watched[0].to_first_step)
    return told


def ours(stack: WatchedStack, shape: Shape, model: Path, folder: Path, total: int, told: Told) -> None:
    watched = watch(stack, job_spec(shape, model, folder, total), WARM_UP, total - COOL_DOWN)
    for step in watched.steps:
        if step["trajectories"] != shape.samples or step["response_tokens"] < 0.98 * shape.max_tokens:
            raise RuntimeError(f"a step of {step['trajectories']} samples, {step['response_tokens']} tokens each")
    seconds = sum(map(seconds_of, watched.steps))
    told.round_ours.append(shape.samples * len(watched.steps) / seconds)
    told.ours += watched.steps
    told.watched.append(watched)


def theirs(trl: Contestant, shape: Shape, steps: int, told: Told) -> None:
    taken: list[dict[str, float]] = trl.ask({"steps": steps})["steps"]
    for step in taken:
        if step["response_tokens"] != shape.samples * shape.max_tokens:
            raise RuntimeError(f"TRL generated {step['response_tokens']} tokens")
    told.round_theirs.append(shape.samples * len(taken) / sum(step["seconds"] for step in taken))
    told.theirs += taken


def figures(shape: Shape, told: Told) -> Iterator[Figure]:
    """The speeds, the start, and where either side's time went."""
    name = f"samples through, {shape}"
    note = (
        f"SmolLM2-135M as student and teacher; a step is {shape.prompts} prompts of {shape.n} samples, all of full "
        "length. TRL holds whole distributions against the teacher's, by a forward inside its step; ours asks a "
        "teacher service for the values of the sampled tokens, verifies each sample and publishes each policy."
    )
    yield beside(name, told.round_ours, told.round_theirs, TRL, "samples/s", COMMAND, aim=AIM, note=note)
    yield beside(
        f"start to the end of the first step, {shape}", told.start_ours, told.start_theirs, TRL, "seconds", COMMAND
    )
    yield alone(f"step, {shape}", list(map(seconds_of, told.ours)), "seconds", COMMAND, note=their_split(shape, told))
    shares: dict[str, list[float]] = defaultdict(list)
    for watched in told.watched:
        for process, share in watched.busy.items():
            shares[process].append(share)
    for process, values in shares.items():
        yield alone(f"busy: {process}, {shape}", values, "% of a core", COMMAND)


def their_split(shape: Shape, told: Told) -> str:
    seconds, generate, teacher = (
        statistics.median(step[key] for step in told.theirs) for key in ("seconds", "generate", "teacher")
    )
    return f"{shape}: a step of TRL takes {seconds:.1f} s, of it generating {generate:.1f}, the teacher {teacher:.1f}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="in full swing, a round and side")
    parser.add_argument("--try", action="store_true", dest="is_trial", help="tiny shapes, nothing published")
    given = parser.parse_args()
    model = prepare_weights().resolve()
    shapes = [replace(shape, numbers=4, max_tokens=8, prompts=2, n=2) if given.is_trial else shape for shape in SHAPES]
    found = [figure for shape in shapes for figure in figures(shape, measure(shape, model, given.rounds, given.steps))]
    if given.is_trial:
        print(*found, sep="\n")
    else:
        publish(found)


if __name__ == "__main__":
    main()
