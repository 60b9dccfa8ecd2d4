"""How a fork server finds out that a layer bites: a child takes it on alone and then tries what it forbids."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TRIAL_BYTES = 2**26


@dataclass(frozen=True)
class Trial:
    layer: str
    bites: Callable[[], bool]
    apply: Callable[[], None] = lambda: None


def _limit(kind: int, value: int) -> None:
    resource.setrlimit(kind, (value, value))


def _landlock_bites() -> bool:
    return _refused(lambda: list(Path("/").iterdir()))


def _seccomp_bites() -> bool:
    def fork() -> None:
        if os.fork() == 0:
            os._exit(0)

    def connect() -> None:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    return _refused(connect) and _refused(socket.socketpair) and _refused(fork)


def _refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except PermissionError:
        return True
    return False


def _memory_is_bounded() -> bool:
    try:
        bytearray(2 * TRIAL_BYTES)
    except MemoryError:
        return True
    return False


def _limit_memory() -> None:
    _limit(resource.RLIMIT_AS, TRIAL_BYTES)


def _cpu_is_bounded() -> bool:
    # Trying it out takes a second of computing, so the kernel is asked instead.
    return resource.getrlimit(resource.RLIMIT_CPU) == (1, 1)


def _files_are_bounded() -> bool:
    with contextlib.suppress(OSError):
        for _ in range(64):
            os.dup(0)
        return False
    return True


def _threads_are_bounded() -> bool:
    try:
        threading.Thread(target=lambda: None).start()
    except RuntimeError:
        return True
    return False


TRIALS = {
    trial.layer: trial
    for trial in (
        Trial("landlock", _landlock_bites),
        Trial("seccomp", _seccomp_bites),
        Trial("rlimit_as", _memory_is_bounded, _limit_memory),
        Trial("rlimit_cpu", _cpu_is_bounded, lambda: _limit(resource.RLIMIT_CPU, 1)),
        Trial("rlimit_nofile", _files_are_bounded, lambda: _limit(resource.RLIMIT_NOFILE, 16)),
        Trial("rlimit_nproc", _threads_are_bounded, lambda: _limit(resource.RLIMIT_NPROC, 1)),
    )
}
