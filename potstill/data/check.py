"""Everything that is wrong with a data set, row by row, before anything is trained on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np

from potstill.contracts.job import DataSpec
from potstill.contracts.problem import Problem
from potstill.data.errors import FILE, DataError
from potstill.data.problems import problem_of, repeated_id
from potstill.data.rows import read_rows

QUANTILES = (0, 50, 95, 100)


class Need(StrEnum):
    """What a row may lack that a job asks for."""

    REFERENCE = "reference"
    SOLUTION = "solution"
    TEACHER = "teacher"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. `row` is the line in JSONL, else the row, from 1."""

    row: int
    message: str


@dataclass(frozen=True)
class Lengths:
    """Characters of a text, over the rows that have it: least, median, 95th percentile, most."""

    count: int
    least: int
    median: int
    most_but_few: int
    most: int

    @classmethod
    def of(cls, texts: Iterable[str | None]) -> Lengths | None:
        lengths = [len(text) for text in texts if text is not None]
        return cls(len(lengths), *map(int, np.percentile(lengths, QUANTILES))) if lengths else None


@dataclass(frozen=True)
class Report:
    """What was found. The data set is sound when there are no findings."""

    rows: int
    findings: list[Finding]
    kinds: Counter[str]
    data_sources: Counter[str]
    teachers: Counter[str]
    lacking: dict[Need, int]  # rows without it, needed or not
    lengths: dict[str, Lengths]


@dataclass
class _Seen:
    """Rows by what must not occur twice."""

    ids: dict[str, int] = field(default_factory=dict)
    prompts: dict[tuple[str, ...], int] = field(default_factory=dict)


def check_data(
    source: str | Path,
    spec: DataSpec,
    *,
    needs: frozenset[Need] = frozenset({Need.REFERENCE}),
    teachers: frozenset[str] = frozenset(),
    against: Sequence[Problem] = (),
) -> Report:
    """Look at every row. Raises DataError when the source as a whole cannot be read.

    `teachers` are the names a row may have, any name where there are none; `against` are problems that no row may
    repeat, as held-out ones.
    """
    findings: list[Finding] = []
    problems: list[Problem] = []
    seen, other, rows = _Seen(), {_words(problem) for problem in against}, 0
    for numbered in read_rows(source):
        rows += 1
        try:
            problem = problem_of(numbered.content(), spec, numbered.where, numbered.number)
        except DataError as error:
            findings.append(Finding(numbered.number, error.message.removeprefix(f"{numbered.where}: ")))
            continue
        problems.append(problem)
        complaints = [*_repetitions(problem, numbered.number, seen, other), *_missing(problem, needs, teachers, spec)]
        findings += [Finding(numbered.number, complaint) for complaint in complaints]
    if rows == 0:
        raise DataError(FILE, f"{source} has no rows")
    return _report(rows, findings, problems)


def _repetitions(problem: Problem, row: int, seen: _Seen, other: set[tuple[str, ...]]) -> list[str]:
    words, complaints = _words(problem), []
    if problem.id in seen.ids:
        complaints.append(f"{repeated_id(problem.id)} (first in row {seen.ids[problem.id]})")
    if words in seen.prompts:
        complaints.append(f"the prompt is that of row {seen.prompts[words]}")
    if words in other:
        complaints.append("the prompt is one of the held-out problems")
    seen.ids.setdefault(problem.id, row)
    seen.prompts.setdefault(words, row)
    return complaints


def _words(problem: Problem) -> tuple[str, ...]:
    """The prompt without regard to spacing."""
    return tuple(f"{message.role} {' '.join(message.content.split())}" for message in problem.prompt)


def _missing(problem: Problem, needs: frozenset[Need], teachers: frozenset[str], spec: DataSpec) -> list[str]:
    complaints = []
    if Need.REFERENCE in needs and not problem.is_verifiable:
        complaints.append(f"there is neither a reference answer ({spec.reference_column!r}) nor tests to verify it by")
    if Need.SOLUTION in needs and problem.solution is None:
        complaints.append(f"there is no solution ({spec.solution_column!r}), which a teacher reads")
    if Need.TEACHER in needs and problem.teacher is None:
        complaints.append(f"there is no teacher ({spec.teacher_column!r}), and there are several to choose from")
    if problem.teacher is not None and teachers and problem.teacher not in teachers:
        complaints.append(f"the teacher {problem.teacher!r} is none of {', '.join(sorted(teachers))}")
    return complaints


def _report(rows: int, findings: list[Finding], problems: Sequence[Problem]) -> Report:
    texts = {
        "prompt": Lengths.of("".join(message.content for message in problem.prompt) for problem in problems),
        "reference": Lengths.of(problem.reference for problem in problems),
        "solution": Lengths.of(problem.solution for problem in problems),
    }
    return Report(
        rows=rows,
        findings=findings,
        kinds=Counter(problem.kind for problem in problems),
        data_sources=Counter(problem.data_source for problem in problems if problem.data_source),
        teachers=Counter(problem.teacher for problem in problems if problem.teacher is not None),
        lacking={
            Need.REFERENCE: sum(not problem.is_verifiable for problem in problems),
            Need.SOLUTION: sum(problem.solution is None for problem in problems),
            Need.TEACHER: sum(problem.teacher is None for problem in problems),
        },
        lengths={name: lengths for name, lengths in texts.items() if lengths is not None},
    )
