"""Commands that speak to a gateway anywhere."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from potstill.cli.follow import follow
from potstill.cli.jobfile import load_job
from potstill.cli.progress import RunProgress, display_for
from potstill.cli.summary import print_result
from potstill.cli.terminal import output
from potstill.client import Client
from potstill.contracts.job import Job
from potstill.contracts.state import JobState

DEFAULT_URL = "http://127.0.0.1:8080"

Url = Annotated[str, typer.Option(envvar="POTSTILL_URL", help="The gateway.")]
Token = Annotated[str | None, typer.Option(envvar="POTSTILL_TOKEN", help="Its bearer token.", show_default=False)]
JobId = Annotated[str, typer.Argument(metavar="ID", help="As `submit` told it.")]
JobPath = Annotated[Path, typer.Argument(help="The job, a YAML file; its `local` section is left out.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the job.")]


def submit(job: JobPath, overrides: Overrides = None, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Queue a job. Paths in it must mean the same where the services run."""
    with Client(url, token) as client:
        output.print(client.submit(load_job(job, overrides or []).spec).id, highlight=False)


def status(
    job_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="One job; without, the newest ones.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Show a job, or the newest jobs."""
    with Client(url, token) as client:
        jobs = [client.get(job_id)] if job_id else client.list().data
    output.print(_table(jobs))
    if job_id and jobs[0].error:
        output.print(f"{jobs[0].error.get('code')}: {jobs[0].error.get('detail')}", style="red", markup=False)


def watch(job_id: JobId, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Follow a job to its end; the exit code is 0 when it succeeded."""
    with Client(url, token) as client:
        job = client.get(job_id)
        ended = follow(client, job_id, display_for(output, RunProgress(job.progress.steps, job.progress.step)))
    print_result(output, ended, (ended.finished_at or ended.created_at) - ended.created_at)
    if ended.status is not JobState.SUCCEEDED:
        raise typer.Exit(1)


def logs(
    job_id: JobId,
    keep_following: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Print a job's events."""
    with Client(url, token) as client:
        events = client.events(job_id) if keep_following else client.past_events(job_id)
        for event in events:
            moment = datetime.datetime.fromtimestamp(event.created_at).astimezone()
            line = f"{moment:%Y-%m-%d %H:%M:%S} {event.level:7} {event.message}"
            output.print(line, highlight=False, markup=False, soft_wrap=True)


def cancel(job_id: JobId, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """End a job for good; its checkpoints stay."""
    with Client(url, token) as client:
        _tell(client.cancel(job_id))


def pause(job_id: JobId, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Take a job off its lane after the step in progress."""
    with Client(url, token) as client:
        _tell(client.pause(job_id))


def resume(job_id: JobId, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Queue a paused job again."""
    with Client(url, token) as client:
        _tell(client.resume(job_id))


def _tell(job: Job) -> None:
    output.print(f"{job.id} is {job.status}", highlight=False)


def _table(jobs: list[Job]) -> Table:
    table = Table(Column("id", no_wrap=True, min_width=28), "name", "status", "step", "held-out", "created")
    for job in jobs:
        gain = f"{job.heldout.before:.3f} -> {job.heldout.after:.3f}" if job.heldout else ""
        created = datetime.datetime.fromtimestamp(job.created_at).astimezone()
        step = f"{job.progress.step}/{job.progress.steps}"
        table.add_row(job.id, job.spec.name, job.status, step, gain, f"{created:%Y-%m-%d %H:%M}")
    return table
