"""From what a person names to problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from potstill.contracts.job import DataSpec
from potstill.contracts.problem import Problem
from potstill.contracts.verification import WIDE_INTEGER, holds_wide_integer
from potstill.data import FILE, DataError, load_problems
from potstill.data.hub import hub_rows, is_hub_source
from potstill.data.problems import problem_of
from potstill.data.rows import NumberedRow, read_rows
from potstill.evaluation.suites import SUITES
from potstill.evaluation.suites import reasoning_gym as generated
from potstill.evaluation.suites.suite import Suite, UnmappableRowError


@dataclass(frozen=True)
class LoadedProblems:
    """What was asked for, each problem with its data set's name, and the rows that could not be asked by reason."""

    problems: list[Problem]
    left_out: Mapping[str, int] = field(default_factory=dict)


def load_suite(named: str) -> LoadedProblems:
    """A suite by `name`, `name=FILE`, `name=hub:owner/name` or `reasoning-gym/task`. Raises DataError."""
    name, _, source = named.partition("=")
    if name.startswith(generated.PREFIX):
        problems = generated.generated_problems(name.removeprefix(generated.PREFIX))
        return LoadedProblems([_of_data_set(problem, name) for problem in problems])
    if name not in SUITES:
        known = ", ".join([*SUITES, f"{generated.PREFIX}<task>"])
        raise DataError(FILE, f"there is no suite {name!r}: there are {known}; --data takes any other file")
    suite = SUITES[name]
    return _read_suite(suite, source or None)


def load_data_file(source: str, spec: DataSpec) -> LoadedProblems:
    """Problems of a file or hub data set in the plain or shared columns. Raises DataError.

    Rows without a data_source belong to a data set of the file's name.
    """
    name = source if is_hub_source(source) else Path(source).stem
    return LoadedProblems(
        [_of_data_set(problem, problem.data_source or name) for problem in load_problems(source, spec)]
    )


def _of_data_set(problem: Problem, name: str) -> Problem:
    return msgspec.structs.replace(problem, data_source=name)


def _read_suite(suite: Suite, source: str | None) -> LoadedProblems:
    problems: dict[str, Problem] = {}
    left_out: Counter[str] = Counter()
    try:
        for row in _rows(suite, source):
            try:
                problem = _problem(suite, row)
            except UnmappableRowError as error:
                left_out[str(error)] += 1
                continue
            if problem.id in problems:
                raise DataError("id", f"{row.where}: the id {problem.id!r} occurs twice")
            problems[problem.id] = _of_data_set(problem, suite.name)
    except DataError as error:
        raise DataError(error.field, f"suite {suite.name}: {error.message}; {_advice(suite)}") from error
    if not problems:
        raise DataError(FILE, f"suite {suite.name}: {source or suite.hub} has no usable row; {_advice(suite)}")
    return LoadedProblems(list(problems.values()), left_out)


def _advice(suite: Suite) -> str:
    columns = ", ".join(suite.columns)
    return f"give --suite {suite.name}=FILE (.jsonl or .parquet of {suite.hub}, with the columns {columns}, or ours)"


def _rows(suite: Suite, source: str | None) -> Iterator[NumberedRow]:
    if source is not None:
        yield from read_rows(source)
        return
    for number, row in enumerate(hub_rows(suite.hub), start=1):
        if suite.selects(row):
            yield NumberedRow(number, row, f"{suite.hub}, row {number}")


def _problem(suite: Suite, numbered: NumberedRow) -> Problem:
    """The suite's own columns where the row has them, else the plain or shared ones."""
    row = numbered.content()
    if not all(column in row for column in suite.columns):
        problem = problem_of(row, DataSpec(train=""), numbered.where, numbered.number)
        if not problem.is_verifiable:
            raise DataError("answer", f"{numbered.where} has neither a reference answer nor tests")
        return problem
    try:
        problem = suite.read(row)
        if holds_wide_integer(problem.tests):
            raise UnmappableRowError(WIDE_INTEGER)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UnmappableRowError):
            raise
        raise DataError(FILE, f"{numbered.where} is no row of this suite ({type(error).__name__}: {error})") from error
    return problem if problem.id else msgspec.structs.replace(problem, id=f"{numbered.number:06d}")
