"""Generated problems with short answers, and the demonstrations that their teacher sees.

`python -m examples.smollm2.tasks` writes `<out>/<task>/{train,heldout}.jsonl` with rows `{prompt, answer, solution}`.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.folders import replaced_when_done

OUT = Path("artifacts/data/smollm2")
NUM_TRAIN, NUM_HELDOUT = 1024, 256
ONE_IN_HELDOUT = 4  # of all things that can be asked, one in this many is kept for the held-out rows
FILES = ("train.jsonl", "heldout.jsonl")


@dataclass(frozen=True)
class Row:
    """One problem. Rows with the same `asks` ask the same thing, in whatever words and order."""

    prompt: str
    answer: str
    solution: str
    asks: tuple[str | int, ...]

    def as_json(self) -> str:
        return json.dumps({"prompt": self.prompt, "answer": self.answer, "solution": self.solution}, ensure_ascii=False)


@dataclass(frozen=True)
class Task:
    name: str
    kinds: tuple[Callable[[random.Random], Row], ...]  # taken in turn, so that rows of every kind are equally many
    num_demonstrations: int


def _largest(rng: random.Random) -> Row:
    a, b, c, d = numbers = rng.sample(range(10, 100), 4)
    return Row(
        prompt=f"What is the largest of {a}, {b}, {c} and {d}?",
        answer=str(max(numbers)),
        solution=f"The largest number is {max(numbers)}.",
        asks=tuple(sorted(numbers)),
    )


def _sum(rng: random.Random) -> Row:
    a, b = rng.randrange(10, 100), rng.randrange(10, 100)
    return Row(f"Add {a} and {b}.", str(a + b), f"{a} + {b} = {a + b}.", (min(a, b), max(a, b)))


_NAMES = ("Ana", "Ben", "Lily", "Mia", "Sam", "Tom")
_THINGS = ("apples", "books", "cards", "coins", "pens", "shells")


def _gain(rng: random.Random) -> Row:
    name, things, a, b = rng.choice(_NAMES), rng.choice(_THINGS), rng.randrange(2, 30), rng.randrange(2, 10)
    question = f"{name} has {a} {things} and gets {b} more. How many {things} does {name} have now?"
    return _word_problem(question, f"{a} + {b}", a + b, ("+", min(a, b), max(a, b)))


def _loss(rng: random.Random) -> Row:
    name, things, a, b = rng.choice(_NAMES), rng.choice(_THINGS), rng.randrange(10, 30), rng.randrange(2, 10)
    question = f"{name} has {a} {things} and gives {b} away. How many {things} does {name} have left?"
    return _word_problem(question, f"{a} - {b}", a - b, ("-", a, b))


def _boxes(rng: random.Random) -> Row:
    things, a, b = rng.choice(_THINGS), rng.randrange(2, 10), rng.randrange(2, 10)
    question = f"There are {a} boxes with {b} {things} in each box. How many {things} are there?"
    return _word_problem(question, f"{a} × {b}", a * b, ("×", min(a, b), max(a, b)))


def _word_problem(question: str, calculation: str, result: int, asks: tuple[str | int, ...]) -> Row:
    return Row(f"{question} Write one equation.", str(result), f"{calculation} = {result}.", asks)


TASKS = {
    task.name: task
    for task in (
        Task("largest", (_largest,), num_demonstrations=4),
        Task("sums", (_sum,), num_demonstrations=6),
        Task("words", (_gain, _loss, _boxes), num_demonstrations=6),
    )
}


def demonstrations(task: Task) -> list[Row]:
    """The same rows for every data seed; they are neither in the training nor in the held-out rows."""
    return _distinct(_stream(task, "demonstrations"), task.num_demonstrations, lambda row: row.asks)


def split(task: Task, *, num_train: int, num_heldout: int, seed: int) -> tuple[list[Row], list[Row]]:
    """Training and held-out rows. What a held-out row asks, no training row asks, in any words or order."""
    shown = {row.asks for row in demonstrations(task)}

    def rows(heldout: bool) -> Iterator[Row]:
        drawn = _stream(task, f"{seed}/{'heldout' if heldout else 'train'}")
        return (row for row in drawn if _is_heldout(row, seed) is heldout and row.asks not in shown)

    train = _distinct(rows(heldout=False), num_train, lambda row: row.prompt)
    return train, _distinct(rows(heldout=True), num_heldout, lambda row: row.prompt)


def _is_heldout(row: Row, seed: int) -> bool:
    digest = hashlib.sha256(f"{seed}/{row.asks}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % ONE_IN_HELDOUT == 0


def _stream(task: Task, purpose: str) -> Iterator[Row]:
    rng = random.Random(f"{task.name}/{purpose}")
    for draw in itertools.cycle(task.kinds):
        yield draw(rng)


def _distinct(rows: Iterator[Row], count: int, key: Callable[[Row], Any]) -> list[Row]:
    found: dict[Any, Row] = {}
    while len(found) < count:
        row = next(rows)
        found.setdefault(key(row), row)
    return list(found.values())


def write_task(
    task: Task, out: Path = OUT, *, num_train: int = NUM_TRAIN, num_heldout: int = NUM_HELDOUT, seed: int = 0
) -> Path:
    """Write both files of one task, whole or not at all, and return their folder."""
    folder = out / task.name
    with replaced_when_done(folder) as draft:
        for name, rows in zip(FILES, split(task, num_train=num_train, num_heldout=num_heldout, seed=seed), strict=True):
            (draft / name).write_text("".join(row.as_json() + "\n" for row in rows))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help=f"of {', '.join(TASKS)}; all by default")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--train", type=int, default=NUM_TRAIN, help="training rows")
    parser.add_argument("--heldout", type=int, default=NUM_HELDOUT, help="held-out rows")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if unknown := set(given.tasks) - set(TASKS):
        parser.error(f"there is no task {', '.join(sorted(unknown))}; there are {', '.join(TASKS)}")
    for name in given.tasks:
        folder = write_task(TASKS[name], given.out, num_train=given.train, num_heldout=given.heldout, seed=given.seed)
        print(f"{name}: {given.train} training and {given.heldout} held-out problems in {folder}")


if __name__ == "__main__":
    main()
