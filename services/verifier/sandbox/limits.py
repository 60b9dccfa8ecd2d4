"""What a program may use, told to the kernel in the program's own process."""

from __future__ import annotations

import math
import resource
from dataclasses import dataclass
from pathlib import Path

OPEN_FILES = 64
OWN_PROCESSES = 128  # threads, where the count is the program's alone
SHARED_PROCESSES = 4096  # threads and processes of all who run under the same user id on this machine
CPU_BACKSTOP = 2  # the kernel counts by ticks, so its limit is for when the fork server, which counts exactly, is stuck


@dataclass(frozen=True)
class Allowance:
    memory_bytes: int  # on top of what the interpreter itself takes
    cpu_seconds: float
    processes: int


def address_space() -> int:
    """Bytes of address space this process has mapped."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def lift() -> None:
    """Undo the limits that this process's parent has set on itself."""
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (hard, hard))


def apply(allowance: Allowance, interpreter_bytes: int) -> None:
    """For good: the soft limit is the hard one. Raises OSError or ValueError."""
    memory = interpreter_bytes + allowance.memory_bytes
    _limit(resource.RLIMIT_AS, memory)
    _limit(resource.RLIMIT_CPU, CPU_BACKSTOP * (math.ceil(allowance.cpu_seconds) + 1))
    _limit(resource.RLIMIT_NPROC, allowance.processes)
    _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_MEMLOCK, 0)


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (allowed, allowed))
