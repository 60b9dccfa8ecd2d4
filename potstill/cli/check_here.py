"""What can be said against a job without any service: its data, and what its rows lack."""

from __future__ import annotations

from pathlib import Path

from potstill.checks.objective import check_objective
from potstill.checks.rows import check_rows
from potstill.cli.terminal import CommandError
from potstill.contracts.job import JobSpec, Validation
from potstill.contracts.problem import Problem
from potstill.data import DataError, load_problems


def check_here(spec: JobSpec) -> Validation:
    """Read both files and match their rows with the teachers. Raises CommandError with every finding."""
    train = problems_of(spec.data.train, "data.train", spec)
    heldout = [] if spec.data.heldout is None else problems_of(spec.data.heldout, "data.heldout", spec)
    found = check_rows(train, spec)
    found += check_objective(spec)
    if found.refusals:
        raise CommandError("; ".join(f"{finding.field}: {finding.message}" for finding in found.refusals))
    return Validation(train_problems=len(train), heldout_problems=len(heldout), warnings=found.warnings)


def problems_of(path: str, field: str, spec: JobSpec) -> list[Problem]:
    """The rows of one file of the job. Raises CommandError."""
    try:
        return load_problems(Path(path), spec.data)
    except DataError as error:
        raise CommandError(f"{field}: {error.message}") from error
