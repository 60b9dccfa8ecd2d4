"""How the cores of one machine are shared out."""

from __future__ import annotations

import os
from dataclasses import dataclass

# Threads that wait sleep: one process' idle threads must not spin on the cores that another one computes on.
QUIET_WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}


@dataclass(frozen=True)
class Threads:
    """CPU threads of each process that computes; teachers share theirs."""

    student: int
    teacher: int
    learner: int

    @classmethod
    def split(cls, cores: int, *, overlapping: bool) -> Threads:
        """Share out `cores`.

        With staleness the learner computes while the next step is sampled and scored, so each side gets half. Without
        it they take turns, and each may have the whole machine.
        """
        half = max(1, cores // 2)
        if not overlapping:
            return cls(cores, cores, cores)
        return cls(half, half, max(1, cores - half))


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_environment(count: int) -> dict[str, str]:
    """Variables that hold a process' numerical libraries to `count` threads."""
    return QUIET_WAITING | {"OMP_NUM_THREADS": str(count), "TOKENIZERS_PARALLELISM": "false"}
