"""What can be said against the rows of a job's training data."""

from __future__ import annotations

from potstill.checks.findings import Findings
from potstill.contracts.context import PlainContext
from potstill.contracts.job import JobSpec
from potstill.contracts.problem import Problem

NAMED_ROWS = 5  # of those that have the same thing wrong


def check_rows(problems: list[Problem], spec: JobSpec) -> Findings:
    """Every row has one teacher, by name or because no other is meant, and what that teacher and its reference read."""
    findings = Findings()
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
    findings.warnings += [_nothing_to_learn(name) for name in routed if _is_the_student(name, spec)]
    asked = {spec.reference_of(name) for name in routed}
    findings.warnings += [
        f"teacher {name!r} is named by no row of the training data"
        for name in sorted(set(spec.teachers) - routed.keys() - asked)
    ]
    return findings


def _is_the_student(name: str, spec: JobSpec) -> bool:
    """Whether a teacher knows nothing that the student does not, and nothing else is to be learnt from."""
    teacher = spec.teachers[name]
    is_plain = isinstance(teacher.context, PlainContext)
    return is_plain and teacher.model == spec.student.model and not spec.resolved_objective.outcome_weight


def _nothing_to_learn(name: str) -> str:
    return (
        f"teacher {name!r} is the student's own model and reads the student's own prompt, so there is nothing to learn "
        f"from it: name a stronger model, or give it a context with the solution or demonstrations"
    )


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
