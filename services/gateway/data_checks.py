"""What can be said against a job's data files before anything is started."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from potstill.contracts.job import DataSpec, JobSpec
from potstill.contracts.problem import Problem
from potstill.data import FILE, DataError, load_problems
from services.gateway.findings import Findings

NAMED_ROWS = 5  # of those that have the same thing wrong


@dataclass(frozen=True)
class CheckedData:
    """The files as they will be read, and what is in them."""

    spec: DataSpec  # with absolute paths: the learner may have another working folder
    train: list[Problem]
    heldout: list[Problem]

    @property
    def kinds(self) -> frozenset[str]:
        """Verifiers that the rows need."""
        return frozenset(problem.kind for problem in (*self.train, *self.heldout))


async def check_data(spec: JobSpec, roots: tuple[Path, ...]) -> tuple[CheckedData | None, Findings]:
    """Read both files and match their rows with the job's teachers. The data is None when a file cannot be used."""
    return await asyncio.to_thread(_check, spec, roots)


def _check(spec: JobSpec, roots: tuple[Path, ...]) -> tuple[CheckedData | None, Findings]:
    findings = Findings()
    train, train_problems = _load(spec.data.train, "data.train", spec.data, roots, findings)
    heldout, heldout_problems = None, None
    if spec.data.heldout is not None:
        heldout, heldout_problems = _load(spec.data.heldout, "data.heldout", spec.data, roots, findings)
    if train_problems is not None:
        _check_teachers(train_problems, spec, findings)
    if findings.refusals or train_problems is None:
        return None, findings
    absolute = {"train": str(train), "heldout": str(heldout) if heldout else None}
    return CheckedData(spec.data.model_copy(update=absolute), train_problems, heldout_problems or []), findings


def _load(
    given: str, field: str, spec: DataSpec, roots: tuple[Path, ...], findings: Findings
) -> tuple[Path | None, list[Problem] | None]:
    path = _locate(given, roots)
    if path is None:
        places = ", ".join(map(str, roots))
        findings.refuse(
            "outside_artifacts",
            field,
            f"{given} is not inside a folder that data may lie in ({places}): move it there, "
            f"or add its folder to POTSTILL_DATA_ROOTS of the gateway",
        )
        return None, None
    if not path.is_file():
        findings.refuse("data_not_found", field, f"{path} does not exist or is not a file: correct the path")
        return None, None
    try:
        return path, load_problems(path, spec)
    except DataError as error:
        where = field if error.field == FILE else f"{field}.{error.field}"
        findings.refuse("invalid_data", where, error.message)
    except OSError as error:
        findings.refuse("invalid_data", field, f"{path} cannot be read: {error.strerror}")
    return None, None


def _locate(given: str, roots: tuple[Path, ...]) -> Path | None:
    """The file with links resolved, or None when that is outside every root."""
    path = Path(given)
    candidates = [path.resolve()] if path.is_absolute() else [(root / path).resolve() for root in roots]
    inside = [found for found in candidates if any(found.is_relative_to(root) for root in roots)]
    return next((found for found in inside if found.is_file()), inside[0] if inside else None)


def _check_teachers(problems: list[Problem], spec: JobSpec, findings: Findings) -> None:
    """Every row has one teacher, by name or because no other is meant, and what that teacher and its reference read."""
    field = f"data.train.{spec.data.teacher_column}"
    unknown = [
        (row, problem) for row, problem in enumerate(problems, 1) if problem.teacher not in (None, *spec.teachers)
    ]
    if unknown:
        findings.refuse(
            "unknown_teacher",
            field,
            f"rows name teachers that the job does not have: "
            f"{_rows([f'{row} ({problem.teacher!r})' for row, problem in unknown])}; "
            f"the job has {', '.join(sorted(spec.teachers))}: add the teacher to `teachers` or correct the rows",
        )
    unnamed = [str(row) for row, problem in enumerate(problems, 1) if problem.teacher is None]
    if unnamed and spec.default_teacher is None:
        findings.refuse(
            "teacher_not_named",
            field,
            f"{_rows(unnamed)} name no teacher, and the job has {len(spec.teachers)}: fill the column "
            f"{spec.data.teacher_column!r}, or keep exactly one teacher that is no reference of another",
        )
    routed = _routed(problems, spec)
    for name, rows in routed.items():
        _check_reference(name, rows, spec, findings)
        for reader in dict.fromkeys((name, spec.reference_of(name))):
            if reader is not None:
                _check_solutions(reader, rows, spec, findings)
    asked = {spec.reference_of(name) for name in routed}
    findings.warnings += [
        f"teacher {name!r} is named by no row of the training data"
        for name in sorted(set(spec.teachers) - routed.keys() - asked)
    ]


def _routed(problems: list[Problem], spec: JobSpec) -> dict[str, list[tuple[int, Problem]]]:
    """Rows with their number, by the teacher that scores them."""
    routed: dict[str, list[tuple[int, Problem]]] = {}
    for row, problem in enumerate(problems, 1):
        name = problem.teacher or spec.default_teacher
        if name in spec.teachers:
            routed.setdefault(name, []).append((row, problem))
    return routed


def _check_reference(name: str, rows: list[tuple[int, Problem]], spec: JobSpec, findings: Findings) -> None:
    """One that is there as another's reference may go without one of its own, until a row is routed to it."""
    if spec.asks_reference(name) and spec.teachers[name].reference is None:
        findings.refuse(
            "reference_missing",
            f"teachers.{name}.reference",
            f"{_rows([str(row) for row, _ in rows])} are scored by {name!r}, and its samples need a reference: "
            f"name one, set its lambda to 1, or give those rows another teacher",
        )


def _check_solutions(reader: str, rows: list[tuple[int, Problem]], spec: JobSpec, findings: Findings) -> None:
    if not spec.teachers[reader].context.needs_solution:
        return
    lacking = [f"{row} (id {problem.id!r})" for row, problem in rows if problem.solution is None]
    if lacking:
        findings.refuse(
            "solution_missing",
            f"data.train.{spec.data.solution_column}",
            f"teacher {reader!r} reads the reference solution, which {_rows(lacking)} lack: fill the column "
            f"{spec.data.solution_column!r}, or give {reader!r} a context that does without",
        )


def _rows(named: list[str]) -> str:
    """`row 1, 2 and 3 more`."""
    more = f" and {len(named) - NAMED_ROWS} more" if len(named) > NAMED_ROWS else ""
    return f"row {', '.join(named[:NAMED_ROWS])}{more}"
