"""The sandboxes of one worker: started, and attacked before they are trusted."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from potstill.contracts.verification import Limits
from services.verifier.sandbox.gvisor import LAYER
from services.verifier.sandbox.runner import Order, Sandbox, SandboxFailedError, run
from services.verifier.sandbox.syscalls import MACHINE, NUMBERS
from services.verifier.settings import SandboxOptions

PROBE_LIMITS = Limits(wall_seconds=20, cpu_seconds=10, memory_bytes=2**28)
BREAKOUT = Path(__file__).with_name("breakout.py")
HONEST = (
    "import csv, difflib, threading\nt = threading.Thread(target=lambda: print(int(input()) + 1))\nt.start()\nt.join()"
)
# Below this no untrusted program is run at all, whatever the policy.
FLOOR = (("seccomp",), ("no_new_privileges",), ("rlimit_as",), ("rlimit_cpu",), ("landlock", "mount_namespace", LAYER))
BPF = {"x86_64": 321, "aarch64": 280}


class Sandboxes:
    """One for programs; one for opaque test code, started when it is first needed."""

    def __init__(self, options: SandboxOptions, programs: Sandbox) -> None:
        self._options, self.programs = options, programs
        self._checks: Sandbox | None = None
        self.layers, self.missing = programs.layers, programs.missing

    @property
    def checks(self) -> Sandbox:
        if self._checks is None:
            self._checks = Sandbox.start(self._options.user_id, self._options.gvisor)
        return self._checks

    def close(self) -> None:
        self.programs.close()
        if self._checks is not None:
            self._checks.close()


def start(options: SandboxOptions) -> Sandboxes:
    """Raises SandboxFailedError when there is no sandbox, it is open, or honest programs do not run in it."""
    if not sys.platform.startswith("linux") or not MACHINE:
        raise SandboxFailedError("programs can be confined on Linux only, on x86-64 and 64-bit ARM")
    sandbox = Sandbox.start(options.user_id, options.gvisor)
    try:
        _check_floor(sandbox)
        _check(sandbox)
    except SandboxFailedError:
        sandbox.close()
        raise
    return Sandboxes(options, sandbox)


def _check_floor(sandbox: Sandbox) -> None:
    for choices in FLOOR:
        if not set(choices) & set(sandbox.layers):
            reason = sandbox.missing.get(choices[0], "unknown reason")
            raise SandboxFailedError(f"{' or '.join(choices)} is not in force: {reason}")


def _check(sandbox: Sandbox) -> None:
    job = {"mode": "stdin", "source": HONEST}
    [honest] = run((sandbox, Order(job, PROBE_LIMITS, b"41\n", 1000)))
    if honest.ended.status or honest.stdout != b"42\n":
        raise SandboxFailedError(f"an honest program does not run: {honest.stderr[-500:].decode(errors='replace')}")
    succeeded = attempts_that_succeed(sandbox)
    if succeeded:
        raise SandboxFailedError(f"a program could {', '.join(succeeded)}")


def attempts_that_succeed(sandbox: Sandbox) -> list[str]:
    """Really try to break out. Raises SandboxFailedError when the attempt itself fails."""
    with tempfile.NamedTemporaryFile(prefix="potstill-canary-") as canary:
        canary.write(b"a secret")
        canary.flush()
        Path(canary.name).chmod(0o644)  # it is the sandbox that must refuse it
        target = {
            "service": os.getpid(),
            "canary": canary.name,
            "memory_bytes": PROBE_LIMITS.memory_bytes,
            "unshare": NUMBERS["unshare"],
            "ptrace": NUMBERS["ptrace"],
            "bpf": BPF[MACHINE],
        }
        job = {"mode": "stdin", "source": BREAKOUT.read_text()}
        [outcome] = run((sandbox, Order(job, PROBE_LIMITS, json.dumps(target).encode(), 10_000)))
    if outcome.ended.status or outcome.ended.left_over:
        raise SandboxFailedError(f"the self-test did not run: {outcome.stderr[-500:].decode(errors='replace')}")
    return outcome.stdout.decode().splitlines()
