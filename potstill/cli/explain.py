"""`potstill explain`: what a job will train, before it does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from potstill.checks.objective import check_objective
from potstill.cli.formula import formula, requests
from potstill.cli.jobfile import load_job
from potstill.cli.remote import Overrides
from potstill.cli.terminal import output
from potstill.contracts.job import JobSpec
from potstill.contracts.objective import PARTS, PRESETS


def explain(
    job: Annotated[Path, typer.Argument(help="The job, a YAML file.")],
    overrides: Overrides = None,
) -> None:
    """Print the formula a job trains, teacher by teacher, and what it asks of the services."""
    for line in explanation(load_job(job, overrides or []).spec):
        output.print(line, highlight=False, markup=False, soft_wrap=True)


def explanation(spec: JobSpec) -> list[str]:
    """The lines."""
    objective = spec.objective
    parts = {**PARTS, **PRESETS[objective.preset]}
    stated = objective.model_dump(exclude={"preset"}, exclude_none=True, exclude_unset=True)
    lines = [f"preset {objective.preset}: " + _settings(parts)]
    lines += [f"stated in the job: {_settings(stated) if stated else 'nothing else'}", f"in full: {_in_full(spec)}", ""]
    lines += ["S, S': the student's log-probability of a token, with and without gradient; T teacher; B as sampled;"]
    lines += ["R reference; A group advantage of the sample's score", ""]
    referred = {teacher.reference for teacher in spec.teachers.values()}
    for name, teacher in spec.teachers.items():
        if name in referred and spec.teachers[name].reference is None:
            lines += [f"teacher {name} ({teacher.model}): a reference; rows that name it as their teacher:"]
        else:
            lines += [f"teacher {name} ({teacher.model}, context {teacher.context.kind}):"]
        if not (name in referred and spec.asks_reference(name) and teacher.reference is None):
            lines += [f"  {line}" for line in formula(spec, name)]
            lines += ["  asks", *(f"    {line}" for line in requests(spec, name))]
        else:
            lines += ["  none may: it has no reference of its own"]
    return lines + [f"warning: {warning}" for warning in check_objective(spec).warnings]


def _in_full(spec: JobSpec) -> str:
    return _settings(spec.resolved_objective.model_dump(exclude_none=True))


def _settings(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())
