"""Places where a test can have a process killed. See docs/architecture.md, Failpoints."""

from __future__ import annotations

import os
import signal
from functools import cache
from pathlib import Path

VARIABLE = "POTSTILL_FAILPOINTS"


@cache
def _armed() -> dict[str, Path]:
    entries = filter(None, os.environ.get(VARIABLE, "").split(","))
    return {place: Path(marker) for place, marker in (entry.split("=", 1) for entry in entries)}


def reached(place: str, step: int) -> None:
    """Kill this process, as the kernel's OOM killer would, if `place@step` is armed and has not fired before."""
    marker = _armed().get(f"{place}@{step}")
    if marker is None or marker.exists():
        return
    with marker.open("w") as file:
        file.write(str(os.getpid()))
        file.flush()
        os.fsync(file.fileno())
    os.kill(os.getpid(), signal.SIGKILL)
