"""Where do the seconds of a job go? `python -m benchmarks.overlap`

The demo's job with strict turns (max_staleness 0) and with one step of staleness, one thread a process, so that rollout
and learner do not fight for a core. A step that overlaps should take about the longer of the two, not their sum.
Of the same jobs: how busy every process is, what the queue costs, how many tokens a second are generated, scored and
learned from and what of it is the teacher's, and how often the teacher has an answer already.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, alone, publish
from benchmarks.machine import machine_facts
from benchmarks.results import RESULTS
from benchmarks.watched import (
    Step,
    Watched,
    WatchedStack,
    learning_seconds,
    moment,
    queue_seconds,
    seconds_of,
    started,
    watch,
)
from examples.smollm2 import prepare
from learner.journal import Journal
from potstill.cli.jobfile import JobFile, load_job
from potstill.cli.run import stack_spec
from potstill.contracts.scoring import ScoreRequest, Sequence
from potstill.contracts.trajectory import TrajectoryGroup
from potstill.service.peers import Peer

COMMAND = "python -m benchmarks.overlap"
JOB = Path("examples/smollm2/demo.yaml")
STEPS, WARM_UP, COOL_DOWN = 8, 2, 1  # nothing is sampled while the last step is learned from
ONE_THREAD = [f"local.threads.{name}=1" for name in ("student", "teacher", "learner")]
CACHE = "potstill_teacher_score_cache_sequences_total"
LOAD_NOTE = "The demo's job: SmolLM2-135M in bfloat16, 16 prompts of 2 samples a step, one thread a process, two cores."


@dataclass(frozen=True)
class Again:
    """One step's samples, scored twice in a row."""

    sequences: int
    hits: float  # of them the second time
    seconds: tuple[float, float]


def job_file(staleness: int, steps: int, changes: list[str]) -> JobFile:
    training = [f"training.steps={steps}", f"training.max_staleness={staleness}", f"training.checkpoint_every={steps}"]
    return load_job(JOB, [*training, "eval.every=0", "eval.max_problems=8", *ONE_THREAD, *changes])


@contextmanager
def stack_of(file: JobFile) -> Iterator[WatchedStack]:
    with (
        tempfile.TemporaryDirectory(dir="artifacts") as folder,
        started(stack_spec(file, Path(folder).resolve())) as (stack, _),
    ):
        yield stack


def measure(steps: int, changes: list[str]) -> tuple[Watched, Watched, Again]:
    """The job in turns, the job that overlaps, and a batch of the latter asked for again."""
    again: list[Again] = []
    files = [job_file(staleness, steps, changes) for staleness in (0, 1)]
    with stack_of(files[0]) as stack:
        turns = watch(stack, files[0].spec, WARM_UP, steps - COOL_DOWN)
    with stack_of(files[1]) as stack:  # another one: a teacher that has seen the job before would know answers

        def ask_again(folder: Path) -> None:
            groups = Journal(folder / "journal").read(steps - COOL_DOWN)
            again.append(asyncio.run(scored_twice(stack, groups)))

        overlapped = watch(stack, files[1].spec, WARM_UP, steps - COOL_DOWN, look=ask_again)
    return turns, overlapped, again[0]


async def scored_twice(stack: WatchedStack, groups: list[TrajectoryGroup]) -> Again:
    """Ask the teacher for a step's groups after the students' own prompts, which it has not read, and once more."""
    (name,) = stack.spec.teachers
    process = f"teacher-{name}"
    requests = [
        ScoreRequest(tuple(Sequence(group.prompt_token_ids, sample.token_ids) for sample in group.trajectories))
        for group in groups
    ]
    peer, seconds, hits = Peer(stack.urls[process], stack.token), [], []
    for _ in range(2):
        before, begun = moment(stack), time.perf_counter()
        await asyncio.gather(*(peer.score(request) for request in requests))
        seconds.append(time.perf_counter() - begun)
        sample = f"{CACHE}{{hit}}"
        now, then = moment(stack).metrics[process], before.metrics[process]
        hits.append(now.get(sample, 0.0) - then.get(sample, 0.0))
    await peer.close()
    return Again(sum(len(request.sequences) for request in requests), hits[1], (seconds[0], seconds[1]))


@dataclass(frozen=True)
class Overlap:
    """Medians over steps, seconds."""

    rollout: float
    learn: float
    in_turns: float
    overlapped: float

    @classmethod
    def of(cls, turns: list[Step], overlapped: list[Step]) -> Overlap:
        return cls(
            statistics.median(step["seconds_waiting"] for step in turns),
            statistics.median(map(learning_seconds, turns)),
            statistics.median(map(seconds_of, turns)),
            statistics.median(map(seconds_of, overlapped)),
        )

    @property
    def longer(self) -> float:
        return max(self.rollout, self.learn)

    @property
    def both(self) -> float:
        return self.rollout + self.learn


def page(overlap: Overlap, steps: int) -> str:
    first, last = WARM_UP + 1, steps - COOL_DOWN
    lines = [
        "# Overlap of rollout and learning",
        "",
        f"The demo's job, {steps} steps, medians of steps {first} to {last}; one thread a process, two cores.",
        "",
        "| | seconds a step |",
        "|---|---|",
        f"| rollout alone (what the learner waits for at `max_staleness: 0`) | {overlap.rollout:.2f} |",
        f"| learning alone (forward, backward, optimizer, publish) | {overlap.learn:.2f} |",
        f"| step at `max_staleness: 0` | {overlap.in_turns:.2f} |",
        f"| step at `max_staleness: 1` | {overlap.overlapped:.2f} |",
        f"| the longer of the two, and their sum | {overlap.longer:.2f}, {overlap.both:.2f} |",
        "| step at 1 over the longer, over the sum "
        f"| {overlap.overlapped / overlap.longer:.2f}, {overlap.overlapped / overlap.both:.2f} |",
        f"| step at 0 over the sum | {overlap.in_turns / overlap.both:.2f} |",
        "",
        "How busy every process is, what the queue costs and what the teacher does in the same jobs is in "
        "[benchmarks.md](../benchmarks.md#overlap).",
        "",
        f"Command: `{COMMAND}`",
        "",
        f"Machine: {', '.join(f'{key} {value}' for key, value in machine_facts().items())}.",
        "",
    ]
    return "\n".join(lines)


def figures(turns: Watched, overlapped: Watched, again: Again) -> Iterator[Figure]:
    overlap = Overlap.of(turns.steps, overlapped.steps)
    over_longer = [seconds_of(step) / overlap.longer for step in overlapped.steps]
    over_both = [seconds_of(step) / overlap.both for step in turns.steps]
    yield alone(
        "step at max_staleness 1, over the longer of rollout and learning",
        over_longer,
        "times",
        COMMAND,
        aim="1.15 at most",
        note=LOAD_NOTE,
    )
    yield alone("step at max_staleness 0, over their sum", over_both, "times", COMMAND, aim="1")
    for watched, name in ((turns, "max_staleness 0"), (overlapped, "max_staleness 1")):
        for process, share in watched.busy.items():
            yield alone(f"busy: {process}, {name}", [share], "% of a core", COMMAND)
    yield from queue_figures(overlapped)
    yield from token_figures(overlapped)
    yield from cache_figures(overlapped, again)


def queue_figures(watched: Watched) -> Iterator[Figure]:
    seconds, steps = queue_seconds(watched), len(watched.steps)
    note = (
        "The queue's seconds are those in its calls, encoding and decoding included, without the waits of blocking "
        "reads; calls at the same time count each, so that the share is an upper bound."
    )
    share = 100 * sum(seconds.values()) / watched.seconds
    yield alone("queue's share of a step", [share], "%", COMMAND, aim="< 1", note=note)
    for process, spent in seconds.items():
        yield alone(f"queue, calls of {process}", [1000 * spent / steps], "ms/step", COMMAND)


def token_figures(watched: Watched) -> Iterator[Figure]:
    tokens = sum(step["tokens"] for step in watched.steps)
    responses = sum(step["response_tokens"] * step["trajectories"] for step in watched.steps)
    computing, teacher = sum(watched.cpu.values()), _teacher(watched)
    note = (
        "Tokens of a job are those of prompts and responses that are learned from; the teacher reads more: its context."
    )
    yield alone("distilled", [tokens / watched.seconds], "tokens/s", COMMAND, note=note)
    yield alone("distilled, response tokens alone", [responses / watched.seconds], "tokens/s", COMMAND)
    yield alone("teacher's share of all computing", [100 * watched.cpu[teacher] / computing], "%", COMMAND)
    yield alone("distilled, by a core", [tokens / computing], "tokens/core second", COMMAND)
    yield alone(
        "distilled, by a core, the teacher's computing left out",
        [tokens / (computing - watched.cpu[teacher])],
        "tokens/core second",
        COMMAND,
    )


def cache_figures(watched: Watched, again: Again) -> Iterator[Figure]:
    teacher = _teacher(watched)
    lookups = watched.changes(teacher, CACHE)
    found = lookups.get("hit", 0.0) + lookups.get("shared", 0.0)
    read = watched.changes(teacher, "potstill_teacher_tokens_total")
    prompts = read["prompt_computed"] + read["prompt_reused"]
    yield alone("teacher, sequences that were scored before", [100 * found / sum(lookups.values())], "%", COMMAND)
    yield alone(
        "teacher, prompt tokens that it did not read again", [100 * read["prompt_reused"] / prompts], "%", COMMAND
    )
    note = (
        f"A step's {again.sequences} samples asked for twice: {again.seconds[0]:.2f} s, then {again.seconds[1]:.3f} s."
    )
    hits = [100 * again.hits / again.sequences]
    yield alone("teacher, the same batch again: sequences that were kept", hits, "%", COMMAND, note=note)


def _teacher(watched: Watched) -> str:
    (name,) = (process for process in watched.cpu if process.startswith("teacher-"))
    return name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--try", action="store_true", dest="is_trial", help="tiny steps, nothing written")
    given = parser.parse_args()
    prepare.main()
    changes = ["training.prompts_per_step=2", "sampling.max_tokens=4"] if given.is_trial else []
    turns, overlapped, again = measure(given.steps, changes)
    found = list(figures(turns, overlapped, again))
    overlap = Overlap.of(turns.steps, overlapped.steps)
    if given.is_trial:
        print(*found, again, overlap, page(overlap, given.steps), sep="\n")
        return
    publish(found)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "overlap.json").write_text(json.dumps(document(overlap), indent=2) + "\n")
    (RESULTS / "overlap.md").write_text(page(overlap, given.steps))


def document(overlap: Overlap) -> dict[str, Any]:
    return {
        "rollout_seconds": overlap.rollout,
        "learn_seconds": overlap.learn,
        "step_seconds": {"max_staleness 0": overlap.in_turns, "max_staleness 1": overlap.overlapped},
        "ratio_to_longer": overlap.overlapped / overlap.longer,
        "ratio_to_sum": overlap.overlapped / overlap.both,
        "machine": machine_facts(),
    }


if __name__ == "__main__":
    main()
