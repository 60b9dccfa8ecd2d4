"""The `potstill` command."""

from __future__ import annotations

from typing import Annotated

import typer

import potstill
from potstill.cli import doctor, explain, remote, run, serve, validate
from potstill.cli.terminal import OneLineErrors, output

app = typer.Typer(
    cls=OneLineErrors,
    help="On-policy distillation of language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    run.run,
    remote.submit,
    remote.status,
    remote.watch,
    remote.logs,
    remote.cancel,
    remote.pause,
    remote.resume,
    validate.validate,
    explain.explain,
    doctor.doctor,
    serve.serve,
):
    app.command()(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        output.print(potstill.__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="And exit.")
    ] = False,
) -> None:
    pass


if __name__ == "__main__":
    app()
