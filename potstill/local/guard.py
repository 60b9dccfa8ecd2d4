"""Kills what a supervisor started when the supervisor itself was killed.

The supervisor starts one guard and holds the other end of its standard input. Process groups are named on it, one a
line (`+123`, `-123`). When the supervisor goes, however it goes, the pipe ends and every group left is killed. Groups,
not processes: an engine that keeps its own workers is taken down with them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import IO


class Guard:
    """The supervisor's end of the pipe."""

    def __init__(self) -> None:
        # -I -S: standard library only, so that a guard starts in milliseconds and weighs next to nothing.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C in the terminal is the supervisor's business
        )

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Kill the groups still watched and end the guard."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()


def kill_group(group: int) -> None:
    """SIGKILL to every process of the group; an empty group is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _watch(lines: IO[str]) -> None:
    groups: set[int] = set()
    for line in lines:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        kill_group(group)


if __name__ == "__main__":
    _watch(sys.stdin)
