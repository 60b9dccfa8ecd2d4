"""Generated tasks of the library reasoning-gym (arXiv 2505.24760), for where no hub can be reached: no file is needed.

Only tasks with one right answer: a number, or what the library itself compares as text. The tasks of a name are the
same whenever they are asked for.
"""

from __future__ import annotations

import re
from typing import Any

from potstill.contracts.problem import Message, Problem
from potstill.data.errors import FILE, DataError
from potstill.evaluation.suites.suite import BOXED

PREFIX = "reasoning-gym/"
TASKS, SEED = 200, 0
NUMBER = re.compile(r"-?\d+(\.\d+)?")


def generated_problems(name: str) -> list[Problem]:
    """200 problems of the task `reasoning-gym/<name>`. Raises DataError when there is none or it has no one answer."""
    try:
        import reasoning_gym
    except ImportError as error:
        message = f"{PREFIX}{name} needs the library: pip install 'potstill[reasoning-gym]'"
        raise DataError(FILE, message) from error
    try:
        tasks: Any = reasoning_gym.create_dataset(name, size=TASKS, seed=SEED)
    except ValueError as error:
        message = f"reasoning-gym has no task {name!r}: chain_sum, gcd, base_conversion and others are there ({error})"
        raise DataError(FILE, message) from error
    entries = list(tasks)
    numbers = all(NUMBER.fullmatch(str(entry["answer"])) for entry in entries)
    if not numbers and type(tasks).score_answer is not reasoning_gym.dataset.ProceduralDataset.score_answer:
        raise DataError(FILE, f"several answers to a task of {PREFIX}{name} may be right: choose another task")
    return [_problem(index, entry, "math" if numbers else "exact") for index, entry in enumerate(entries)]


def _problem(index: int, entry: dict[str, Any], kind: str) -> Problem:
    prompt = BOXED.format(problem=str(entry["question"]).strip())
    return Problem(f"{index:06d}", (Message("user", prompt),), kind=kind, reference=str(entry["answer"]))
