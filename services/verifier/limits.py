"""The limits a worker puts on itself before it takes work, and which of them it found in force."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1


def bind_to_parent(parent: int) -> bool:
    """Die with the parent, even while busy. Returns whether the kernel has agreed."""
    if not sys.platform.startswith("linux"):
        return False
    agreed: bool = ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) == 0
    if os.getppid() != parent:  # it died before the call above
        os._exit(0)
    return agreed


def limit_memory(memory_bytes: int) -> bool:
    """Bound the address space, and write no core files. Returns whether an allocation past the bound fails."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The hard limit stays: programs under test have limits of their own.
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))
    try:
        bytearray(memory_bytes)
    except MemoryError:
        return True
    return False


def limit_cpu(seconds: int) -> bool:
    """Bound the CPU time from now on: a worker ends even when its parent is too busy, or stopped, to kill it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    until = int(usage.ru_utime + usage.ru_stime) + 1 + seconds
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    until = until if hard == resource.RLIM_INFINITY else min(until, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (until, hard))
    return resource.getrlimit(resource.RLIMIT_CPU)[0] == until
