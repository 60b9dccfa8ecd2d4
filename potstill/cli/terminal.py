"""The terminal: one console for results, one for errors, and errors that are one line."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperGroup

from potstill.cli.jobfile import JobFileError
from potstill.client import ApiError, UnreachableError
from potstill.local.stack import StackError
from potstill.local.supervisor import SupervisorError
from potstill.local.valkey import QueueServerMissingError

INTERRUPTED_EXIT = 130
output = Console()
errors = Console(stderr=True)


class CommandError(Exception):
    """A command cannot do what it was asked; the text says what to do."""


EXPECTED = (
    ApiError,
    CommandError,
    JobFileError,
    QueueServerMissingError,
    StackError,
    SupervisorError,
    UnreachableError,
)


class OneLineErrors(TyperGroup):
    """Commands whose expected failures are told in a line, with exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EXPECTED as error:
            errors.print(f"potstill: {_told(error)}", style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED_EXIT) from error


def _told(error: Exception) -> str:
    if isinstance(error, ApiError) and error.problem.errors:
        lines = [f"\n  {found.field}: {found.message}" for found in error.problem.errors]
        return f"{error.problem.title} ({error.code})" + "".join(lines)
    return error.summary if isinstance(error, SupervisorError) else str(error)


def interrupt_on_sigterm() -> None:
    """Let SIGTERM end a command as Ctrl-C does, so that what it started is stopped."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
