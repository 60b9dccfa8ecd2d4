"""What can be said against a job's data files before anything is started."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from potstill.checks.findings import Findings
from potstill.checks.rows import check_rows
from potstill.contracts.job import DataSpec, JobSpec
from potstill.contracts.problem import Problem
from potstill.data import FILE, DataError, load_problems


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
        findings += check_rows(train_problems, spec)
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
