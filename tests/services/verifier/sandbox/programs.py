"""Items of kind `code`, and what is left of them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from potstill.contracts.verification import Limits, VerifyItem, VerifyResult
from tests.services.verifier.running import Verifier, is_running

QUICK = Limits(wall_seconds=2.0, cpu_seconds=1.0)
MIB = 2**20


def fenced(source: str) -> str:
    return f"Here is my solution.\n\n```python\n{textwrap.dedent(source).strip(chr(10))}\n```\n"


def script(
    source: str, stdin: str = "", stdout: str = "", limits: Limits | None = None, name: str = "one"
) -> VerifyItem:
    return VerifyItem(name, "code", fenced(source), tests=({"stdin": stdin, "stdout": stdout},), limits=limits)


def function(
    source: str, name: str | None, *tests: dict[str, Any], limits: Limits | None = None, stop_early: bool = True
) -> VerifyItem:
    return VerifyItem("one", "code", fenced(source), None, tests, name, limits, stop_early)


def returns(source: str, name: str, arguments: list[Any], expected: Any) -> VerifyItem:
    return function(source, name, {"arguments": arguments, "expected": expected})


SUM = script("a, b = map(int, input().split())\nprint(a + b)", "1 2\n", "3\n")


def judge(verifier: Verifier, item: VerifyItem) -> VerifyResult:
    [result] = verifier.verify(item)
    return result


def children(pid: int) -> list[int]:
    try:
        listed = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [child for child in map(int, listed.split()) if is_running(child)]


def fork_servers(verifier: Verifier) -> list[int]:
    """The process that forks the programs, below every worker that has one."""
    servers = [server for worker in verifier.workers() for server in children(worker)]
    in_namespace = "pid_namespace" in verifier.isolation()
    return [inner for server in servers for inner in children(server)] if in_namespace else servers


def running_programs(verifier: Verifier) -> list[int]:
    return [program for server in fork_servers(verifier) for program in children(server)]
