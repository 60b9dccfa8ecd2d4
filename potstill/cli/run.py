"""`potstill run`: a whole job on one machine."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from potstill.cli.by_teacher import LastSteps
from potstill.cli.check_here import check_here
from potstill.cli.follow import follow
from potstill.cli.jobfile import JobFile, load_job
from potstill.cli.progress import RunProgress, display_for
from potstill.cli.summary import Curves, plot_curves, print_result, summary_document, write_summary
from potstill.cli.terminal import INTERRUPTED_EXIT, errors, interrupt_on_sigterm, output
from potstill.client import ApiError, Client, UnreachableError
from potstill.contracts.job import Job
from potstill.contracts.state import JobState
from potstill.local.stack import GpuShares, Stack, StackSpec, TeacherProcess
from potstill.local.supervisor import SupervisorError
from potstill.local.threads import Threads, usable_cores
from potstill.service.logs import configure_logging

CANCEL_SECONDS = 15.0  # what a learner gets to put a cancelled job away
POLL_SECONDS = 0.2


def run(
    job: Annotated[Path, typer.Argument(help="The job, a YAML file.")],
    out: Annotated[Path | None, typer.Option(help="Where artifacts go. [default: artifacts/<job name>]")] = None,
    engine: Annotated[str | None, typer.Option(help="torch or vllm, for student and teachers.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the job, e.g. training.steps=5.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the data order and of all sampling.")] = None,
) -> None:
    """Run a job on this machine: start everything, train, evaluate, stop everything."""
    local = [f"local.engine={engine}"] if engine else []
    file = load_job(job, [*(overrides or []), *local], seed=seed)
    check_here(file.spec)  # before a model is loaded; the gateway checks the rest
    folder = out or Path("artifacts") / file.spec.name
    interrupt_on_sigterm()
    configure_logging("warning", "console")
    # The queue of an earlier run holds jobs that nobody asked for today. What they left on disk stays.
    shutil.rmtree(folder / "valkey", ignore_errors=True)
    stack = Stack(stack_spec(file, folder), progress=_say)
    with stack:
        ended, seconds = _run_job(stack, file)
        _report(stack.client(), ended, seconds, folder, file)
    if ended.status is not JobState.SUCCEEDED:
        errors.print(f"the logs are in {folder / 'logs'}", markup=False, highlight=False)
        raise typer.Exit(1)


def _say(line: str) -> None:
    output.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)


def stack_spec(file: JobFile, folder: Path) -> StackSpec:
    """The processes that a job file needs."""
    job, local = file.spec, file.local
    shares = Threads.split(usable_cores(), overlapping=job.training.max_staleness > 0)
    threads = Threads(
        student=local.threads.student or shares.student,
        teacher=local.threads.teacher or shares.teacher,
        learner=local.threads.learner or shares.learner,
    )
    data = [Path(path).parent for path in (job.data.train, job.data.heldout) if path is not None]
    return StackSpec(
        artifacts=folder,
        student_model=job.student.model,
        teachers={name: TeacherProcess(spec.model, local.teacher_dtype) for name, spec in job.teachers.items()},
        engine=local.engine,
        student_dtype=local.student_dtype or job.student.dtype,
        max_length=local.max_length,
        student_slots=local.student_slots,
        rollout_workers=local.rollout_workers,
        threads=threads,
        gpu=GpuShares(local.gpu_memory.student, local.gpu_memory.teacher),
        data_roots=tuple(dict.fromkeys(data)),
    )


def _run_job(stack: Stack, file: JobFile) -> tuple[Job, float]:
    """Submit and follow; returns the job as it ended and the seconds since its submission."""
    client = stack.client()
    begun = time.monotonic()
    job = client.submit(file.spec)
    _say(f"{job.id} is queued")
    display = display_for(output, RunProgress(job.progress.steps))
    try:
        ended = follow(client, job.id, display, stack.check)
    except KeyboardInterrupt:
        _cancel(stack, client, job.id)
        raise typer.Exit(INTERRUPTED_EXIT) from None
    return ended, time.monotonic() - begun


def _cancel(stack: Stack, client: Client, job_id: str) -> None:
    """Ask for the end and wait for it, but not for ever: everything is stopped next."""
    errors.print("cancelling the job and stopping everything", style="yellow")
    deadline = time.monotonic() + CANCEL_SECONDS
    try:
        job = client.cancel(job_id)
        while not job.status.is_terminal and time.monotonic() < deadline:
            stack.check()
            time.sleep(POLL_SECONDS)
            job = client.get(job_id)
    except (ApiError, UnreachableError, SupervisorError) as error:
        errors.print(f"the job could not be cancelled: {error}", markup=False, highlight=False)


def _report(client: Client, job: Job, seconds: float, folder: Path, file: JobFile) -> None:
    reported = client.metrics(job.id)
    last = LastSteps.of(reported)
    plot = plot_curves(folder, job, Curves.of(reported, client.past_events(job.id)))
    document = summary_document(job, seconds, engine=file.local.engine, last_steps=last and last.document())
    summary = write_summary(folder, document)
    print_result(output, job, seconds)
    if last is not None and len(last.teachers) > 1:
        output.print(last.table())
    for path in filter(None, (summary, plot)):
        output.print(f"{path.stem}: {path}", highlight=False, markup=False, soft_wrap=True)
