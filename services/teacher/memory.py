"""How much memory this process may still take, and giving back what it no longer uses."""

from __future__ import annotations

import ctypes
from pathlib import Path

UNLIMITED = 2**62  # cgroups v1 says "no limit" with a number near 2**63
M_MMAP_THRESHOLD = -3  # malloc.h
LARGE_ALLOCATION = 4 * 2**20
FREE_SHARE = 0.5  # of what is free after loading; the rest is for other processes and for what estimates miss


def available_bytes(root: Path = Path("/")) -> int:
    """The smaller of what the machine has free and what the cgroup leaves. `root` holds `proc` and `sys`."""
    free = [_machine_free(root), *_cgroup_free(root)]
    return max(0, min(free))


def return_large_allocations() -> None:
    """Have glibc give large buffers back to the system at once.

    Left alone it raises its threshold to 32 MiB and keeps what is freed below: a group was measured to take three and
    a half times what it held. Does nothing where the C library is another one.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_ALLOCATION)


def _machine_free(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    raise ValueError("/proc/meminfo has no MemAvailable line")


def _cgroup_free(root: Path) -> list[int]:
    """What each cgroup version leaves, its reclaimable page cache counted as free; empty without a limit."""
    base = root / "sys/fs/cgroup"
    return [
        limit - used + cache
        for limit_file, used_file, stat_file, cache_key in (
            ("memory.max", "memory.current", "memory.stat", "inactive_file"),
            (
                "memory/memory.limit_in_bytes",
                "memory/memory.usage_in_bytes",
                "memory/memory.stat",
                "total_inactive_file",
            ),
        )
        if (limit := _number(base / limit_file)) is not None
        and limit < UNLIMITED
        and (used := _number(base / used_file)) is not None
        and (cache := _stat(base / stat_file, cache_key)) is not None
    ]


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _stat(path: Path, key: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(value) for name, value in (line.split() for line in lines) if name == key), 0)
