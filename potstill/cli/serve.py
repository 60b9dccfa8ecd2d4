"""`potstill serve`: one process alone."""

from __future__ import annotations

import importlib.util
import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from potstill.cli.terminal import CommandError


class Process(StrEnum):
    """The processes of a deployment."""

    GATEWAY = "gateway"
    STUDENT = "student"
    TEACHER = "teacher"
    VERIFIER = "verifier"
    ROLLOUT = "rollout"
    LEARNER = "learner"

    @property
    def module(self) -> str:
        return "learner" if self is Process.LEARNER else f"services.{self}"


def serve(
    process: Annotated[Process, typer.Argument(help="Which one.")],
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="[default: POTSTILL_PORT or 8080]")] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. [default: POTSTILL_HOST or 127.0.0.1]")
    ] = None,
) -> None:
    """Run one process in the foreground; settings are POTSTILL_* variables, or a file named by POTSTILL_SETTINGS."""
    if importlib.util.find_spec(process.module) is None:
        raise CommandError(f"{process.module} is not installed here: pip install 'potstill[{process}]'")
    given = {"POTSTILL_PORT": port, "POTSTILL_HOST": host}
    environment = os.environ | {name: str(value) for name, value in given.items() if value is not None}
    # The process takes our place, so that signals reach it and its exit code is ours.
    os.execve(sys.executable, [sys.executable, "-m", process.module], environment)  # noqa: S606
