"""`potstill data`: what a data set holds and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from potstill.cli.jobfile import load_job
from potstill.cli.terminal import CommandError, output
from potstill.contracts.job import DataSpec, JobSpec
from potstill.data import DataError, load_problems
from potstill.data.check import Need, Report, check_data

NAMES_SHOWN = 10
app = typer.Typer(no_args_is_help=True)


@app.callback()
def _data() -> None:
    """Data sets before they are trained on."""


@app.command()
def check(
    source: Annotated[str, typer.Argument(metavar="FILE", help="JSONL, Parquet, or hub:owner/name.")],
    job: Annotated[Path | None, typer.Option(help="A job file: its columns, teachers and needs are checked.")] = None,
    need: Annotated[list[Need] | None, typer.Option(help="What every row must have. [default: reference]")] = None,
    against: Annotated[str | None, typer.Option(help="Held-out data that no row may repeat.")] = None,
) -> None:
    """Report every bad row, duplicates, what rows lack, and lengths; exit 1 when anything is wrong.

    With --job the held-out file of the job is what no row may repeat, unless it is the one that is checked.
    """
    spec = load_job(job).spec if job is not None else None
    columns = spec.data if spec is not None else DataSpec(train=source)
    heldout = against or (spec.data.heldout if spec is not None else None)
    try:
        others = load_problems(heldout, columns) if heldout is not None and not _same(heldout, source) else []
        report = check_data(
            source,
            columns,
            needs=frozenset(need or ()) | _needs(spec, source, bool(need)),
            teachers=frozenset(spec.teachers) if spec else frozenset(),
            against=others,
        )
    except DataError as error:
        raise CommandError(error.message) from error
    _print(report)
    if report.findings:
        raise typer.Exit(1)


def _same(one: str, other: str) -> bool:
    return one == other or Path(one).resolve() == Path(other).resolve()


def _needs(spec: JobSpec | None, source: str, is_told: bool) -> frozenset[Need]:
    """What the job asks of every row of this file; without a job a reference, unless something else is told."""
    if spec is None or (spec.data.heldout is not None and _same(spec.data.heldout, source)):
        return frozenset() if is_told else frozenset({Need.REFERENCE})
    reads_solution = any(teacher.context.needs_solution for teacher in spec.teachers.values())
    asked = {
        Need.REFERENCE: spec.resolved_objective.needs_score,
        Need.SOLUTION: reads_solution and len(spec.teachers) == 1,
        Need.TEACHER: spec.default_teacher is None,
    }
    return frozenset(need for need, is_asked in asked.items() if is_asked)


def _print(report: Report) -> None:
    for finding in report.findings:
        output.print(
            f"row {finding.row}: {finding.message}", style="red", markup=False, highlight=False, soft_wrap=True
        )
    table = Table("characters of", "rows", "least", "median", "95%", "most", title=f"{report.rows} rows")
    for name, lengths in report.lengths.items():
        numbers = (lengths.count, lengths.least, lengths.median, lengths.most_but_few, lengths.most)
        table.add_row(name, *(f"{number:,}" for number in numbers))
    output.print(table)
    for name, counts in (("kinds", report.kinds), ("data sources", report.data_sources), ("teachers", report.teachers)):
        if counts:
            output.print(f"{name}: {_listed(counts)}", markup=False, highlight=False, soft_wrap=True)
    lacking = ", ".join(f"{count} without a {need}" for need, count in report.lacking.items() if count)
    if lacking:
        output.print(f"rows: {lacking}", markup=False, highlight=False)
    bad = len({finding.row for finding in report.findings})
    verdict = f"{bad} of {report.rows} rows have something wrong" if bad else "nothing is wrong"
    output.print(verdict, style="red" if bad else "green", highlight=False)


def _listed(counts: Counter[str]) -> str:
    shown = ", ".join(f"{name} {count:,}" for name, count in counts.most_common(NAMES_SHOWN))
    return shown + (f" and {len(counts) - NAMES_SHOWN} more" if len(counts) > NAMES_SHOWN else "")
