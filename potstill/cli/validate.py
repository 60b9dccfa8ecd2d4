"""`potstill validate`: what speaks against a job, before it is queued."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Annotated

import typer

from potstill.cli.check_here import check_here, problems_of
from potstill.cli.jobfile import JobFile, load_job
from potstill.cli.remote import Overrides, Token
from potstill.cli.run import stack_spec
from potstill.cli.terminal import interrupt_on_sigterm, output
from potstill.client import Client
from potstill.contracts.job import Validation
from potstill.local.self_check import LARGEST_FLOAT32, MEAN_BFLOAT16, TEACHER, SelfCheck, self_check
from potstill.local.stack import Stack, TeacherProcess
from potstill.service.logs import configure_logging

GatewayUrl = Annotated[
    str | None, typer.Option(envvar="POTSTILL_URL", help="A gateway to ask; without, only the file and its data.")
]


def validate(
    job: Annotated[Path, typer.Argument(help="The job, a YAML file.")],
    overrides: Overrides = None,
    url: GatewayUrl = None,
    token: Token = None,
    check_itself: Annotated[
        bool,
        typer.Option("--self-check", help="Start the services here; do student and teacher agree?"),
    ] = False,
    engine: Annotated[str | None, typer.Option(help="torch or vllm, for --self-check.")] = None,
) -> None:
    """Check a job against its data and the services, without queueing it."""
    file = load_job(job, [*(overrides or []), *([f"local.engine={engine}"] if engine else [])])
    if check_itself:
        _check_with_services(file)
    elif url is not None:
        with Client(url, token) as client:
            _tell(client.validate(file.spec), "the job can run")
    else:
        _tell(check_here(file.spec), "the file and its data are in order")
        output.print("no service was asked: name a gateway (--url, POTSTILL_URL), or use --self-check", style="dim")


def _check_with_services(file: JobFile) -> None:
    """Start what a run starts, but for the learner, and a teacher that is the student."""
    check_here(file.spec)
    folder = Path("artifacts") / file.spec.name / "self-check"
    shutil.rmtree(folder, ignore_errors=True)
    interrupt_on_sigterm()
    configure_logging("warning", "console")
    spec = stack_spec(file, folder)
    itself = TeacherProcess(file.spec.student.model, spec.student_dtype)
    spec = dataclasses.replace(
        spec, teachers={**spec.teachers, TEACHER: itself}, without=frozenset({"learner"}), rollout_workers=1
    )
    with Stack(spec, progress=lambda line: output.print(line, style="dim", highlight=False, markup=False)) as stack:
        with stack.client() as client:
            _tell(client.validate(file.spec), "the job can run")
        found = self_check(stack, file.spec, problems_of(file.spec.data.train, "data.train", file.spec))
    _tell_agreement(found)
    if not found.passed:
        raise typer.Exit(1)


def _tell(found: Validation, verdict: str) -> None:
    output.print(f"{verdict}: {found.train_problems} training and {found.heldout_problems} held-out problems")
    for warning in found.warnings:
        output.print(f"warning: {warning}", style="yellow", markup=False)


def _tell_agreement(found: SelfCheck) -> None:
    """max |d| and whether that is rounding."""
    bound = f"max |d| < {LARGEST_FLOAT32:g}" if found.dtype == "float32" else f"mean |d| < {MEAN_BFLOAT16:g}"
    verdict = "passed" if found.passed else "FAILED"
    output.print(
        f"self-check {verdict}: max |d| {found.largest:.2e}, mean {found.mean:.2e} nats over {found.positions} tokens, "
        f"{found.ends} of them ends, {found.missing} missing ({found.dtype}: {bound})",
        style="green" if found.passed else "red", highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip
