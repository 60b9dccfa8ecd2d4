"""Has anything become slower? `make bench-quick`, in a few minutes

Short forms of the benchmarks, each a ratio of two sides measured in turn, so that a slow machine is slow on both. A
ratio that has lost more than a quarter against `benchmarks/quick.json` is measured once more, and fails the command if
that finds it lost too; `--write` accepts today's. Ratios differ between kinds of processors (the codec's by 1.4), so
each kind has its own; on one that has none the lowest of all is what counts.

`--stable` measures only what comes out alike on a busy machine: both sides in one process and thread, by the
processor's own time. In five runs in a row at a load average of 5 on two cores the codec's ratio was within 1% of its
median, those of the passes within 12%. By the clock, and in processes of their own, an update's went from 1.3 to 2.4
and the queue's from 0.64 to 0.87.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from benchmarks import gpu, learner, publish, queue, scale
from benchmarks.figures import Figure, beside, line
from benchmarks.machine import cpu_name
from benchmarks.processes import TOKEN, Service, running
from examples.smollm2.weights import prepare_weights
from potstill.contracts import wire
from potstill.contracts.trajectory import TrajectoryGroup

COMMITTED = Path("benchmarks/quick.json")
LARGEST_LOSS = 0.25
CODEC_ROUNDS, CODEC_SECONDS = 15, 0.1
PASSES = gpu.Size(vocab=16_000, hidden=256, layers=4, prompt=128, response=32, samples=8, rounds=7)


def codec(model: Path) -> list[Figure]:
    """A group to bytes and back, as between all processes, by the processor's own time; beside it the same in JSON."""
    sides: tuple[list[float], list[float]] = ([], [])
    for _ in range(CODEC_ROUNDS):
        for media_type, rates in zip((wire.MSGPACK, wire.JSON), sides, strict=True):
            begun, count = time.process_time(), 0
            while time.process_time() - begun < CODEC_SECONDS:
                wire.decode(wire.encode(queue.GROUP, media_type), TrajectoryGroup, media_type)
                count += 1
            rates.append(count / (time.process_time() - begun))
    return [beside("groups encoded and decoded", *sides, "JSON", "groups/s", "")]


def passes(model: Path) -> list[Figure]:
    """Update, scoring and head on random weights, by the processor's own time; beside it whole rows and all logits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # those that wait for each other spin, the more the busier the machine is
    try:
        found = gpu.measure(PASSES, gpu.Meter(torch.device("cpu"), time.process_time))
    finally:
        torch.set_num_threads(threads)
    return [figure for figure in found if figure.ratio is not None]


def through_the_queue(model: Path) -> list[Figure]:
    return queue.measure(3, 1.5, paced=False)


def one_update(model: Path) -> list[Figure]:
    names = [learner.OURS, learner.PLAIN]
    return learner.measure(names, model, "float32", 3, (learner.Shape(128, 32),))


def to_be_served(model: Path) -> list[Figure]:
    return [f for f in publish.measure(model, "torch", "float32", 3) if f.ratio is not None][1:2]


def more_workers(model: Path) -> list[Figure]:
    with running() as services:
        return scale.scaling_figures([asyncio.run(scale.scaling(services, model, 12.0, (1, 2)))])


def scoring_a_group(model: Path) -> list[Figure]:
    """The torch engine's service against a plain forward; that of vLLM is in `benchmarks.scoring`."""
    import psutil

    from benchmarks.scoring import Contestant, Shape, Teacher, Transformers

    shape, loop = Shape(512, 64, 3.0), asyncio.new_event_loop()
    settings = {"TEACHER_ENGINE": "torch", "TEACHER_MODEL": str(model), "TEACHER_DTYPE": "bfloat16"}
    settings |= {"TEACHER_SCORE_CACHE_BYTES": "0", "TEACHER_THREADS": str(len(os.sched_getaffinity(0)))}
    with running() as services:
        url = services.start({"teacher": Service("services.teacher", settings)})["teacher"]
        sides: list[Contestant] = [Teacher(psutil.Process(), url, loop, token=TOKEN), Transformers(model)]
        spent: list[list[float]] = [[], []]
        for number in range(4):
            for side, seconds in zip(sides, spent, strict=True):
                begun = time.perf_counter()
                side.score(shape.group(number))
                seconds.append(time.perf_counter() - begun)
    loop.close()
    ours, plain = (each[1:] for each in spent)  # the first warms up
    return [beside(f"scoring, {shape}, torch engine", ours, plain, "transformers", "seconds", "")]


PARTS: dict[str, Callable[[Path], list[Figure]]] = {
    "codec": codec,
    "passes": passes,
    "queue": through_the_queue,
    "scoring": scoring_a_group,
    "update": one_update,
    "publish": to_be_served,
    "rollout": more_workers,
}
STABLE = ("codec", "passes")
Ratios = dict[str, float]  # what is measured, and against what, to the ratio
ByPart = dict[str, Ratios]


def key(figure: Figure) -> str:
    return f"{figure.name}, against {figure.peer_name}"


def losses(measured: Mapping[str, float], committed: Mapping[str, float]) -> list[str]:
    """A line for every committed ratio that has lost too much, or was not measured."""
    told = []
    for name, before in committed.items():
        now = measured.get(name)
        if now is None:
            told.append(f"{name}: not measured, {before:.2f} before")
        elif now < before * (1 - LARGEST_LOSS):
            told.append(f"{name}: {now:.2f}, {before:.2f} before, a loss of {1 - now / before:.0%}")
    return told


def committed_for(cpu: str, every: Mapping[str, ByPart]) -> ByPart:
    """What this kind of processor had, part by part; the lowest of all kinds for a part that it has not measured."""
    lowest: ByPart = {}
    for parts in every.values():
        for part, ratios in parts.items():
            for name, ratio in ratios.items():
                kept = lowest.setdefault(part, {})
                kept[name] = min(ratio, kept.get(name, ratio))
    return lowest | every.get(cpu, {})


def measured(part: str, model: Path) -> Ratios:
    ratios: Ratios = {}
    for figure in PARTS[part](model):
        assert figure.ratio is not None
        ratios[key(figure)] = figure.ratio
        print(line(figure), flush=True)
    return ratios


def compare(parts: Sequence[str], model: Path, committed: ByPart) -> list[str]:
    """The losses of these parts. What looks like one is measured again: a machine may be disturbed for a moment."""
    told: list[str] = []
    for part in parts:
        before = committed.get(part, {})
        if losses(ratios := measured(part, model), before):
            print(f"{part} once more", flush=True)
            again = measured(part, model)
            ratios = {name: max(ratio, again.get(name, ratio)) for name, ratio in ratios.items()}
        told += losses(ratios, before)
    return told


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="accept today's ratios")
    parser.add_argument("--stable", action="store_true", help=f"only {', '.join(STABLE)}: CI runs these")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--against", type=Path, default=COMMITTED, help="the ratios to compare with")
    given = parser.parse_args(arguments)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    parts: Sequence[str] = STABLE if given.stable else given.parts
    model = Path() if set(parts) <= set(STABLE) else prepare_weights().resolve()  # the stable ones take none
    begun = time.monotonic()
    every: dict[str, ByPart] = json.loads(given.against.read_text())
    cpu = cpu_name()
    if given.write:
        today = {part: {name: round(ratio, 3) for name, ratio in measured(part, model).items()} for part in parts}
        every[cpu] = every.get(cpu, {}) | today
        given.against.write_text(json.dumps(every, indent=2) + "\n")
        return
    if cpu not in every:
        print(f"{cpu} has no ratios of its own yet: the lowest of {', '.join(every)} count")
    told = compare(parts, model, committed_for(cpu, every))
    print(f"{time.monotonic() - begun:.0f} s")
    if told:
        sys.exit("\n".join(["more than a quarter was lost:", *told]))


if __name__ == "__main__":
    main()
