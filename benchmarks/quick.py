"""Has anything become slower? `make bench-quick`, in a few minutes

Short forms of the benchmarks, each a ratio of two sides measured in turn, so that a slow machine is slow on both. A
ratio that has lost more than a quarter against `benchmarks/quick.json` fails the command; `--write` accepts today's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import learner, publish, queue, scale
from benchmarks.figures import Figure, beside, line
from benchmarks.processes import TOKEN, Service, running
from examples.smollm2.weights import prepare_weights

COMMITTED = Path("benchmarks/quick.json")
LARGEST_LOSS = 0.25


def through_the_queue(model: Path) -> list[Figure]:
    return queue.measure(3, 1.5)[:1]


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


PARTS: tuple[Callable[[Path], list[Figure]], ...] = (
    through_the_queue,
    scoring_a_group,
    one_update,
    to_be_served,
    more_workers,
)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="accept today's ratios")
    given = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    model, begun = prepare_weights().resolve(), time.monotonic()
    measured: dict[str, float] = {}
    for part in PARTS:
        for figure in part(model):
            assert figure.ratio is not None
            measured[key(figure)] = figure.ratio
            print(line(figure), flush=True)
    print(f"{time.monotonic() - begun:.0f} s")
    if given.write:
        COMMITTED.write_text(json.dumps({name: round(ratio, 3) for name, ratio in measured.items()}, indent=2) + "\n")
    elif told := losses(measured, json.loads(COMMITTED.read_text())):
        sys.exit("\n".join(["more than a quarter was lost:", *told]))


if __name__ == "__main__":
    main()
