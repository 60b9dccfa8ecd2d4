"""Test code in a process apart from the program: the names of the program's functions stand for calls over pipes.

So assertions and expected values are never in the program's memory, and the test code compares plain data that it
received.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
from collections.abc import Iterator
from typing import Any

from services.verifier.sandbox import values

ENTRY = "check"


class ProgramEndedError(Exception):
    """The program is gone, or what it sends is no reply: its own process tells why."""


class Remote:
    """A function of the program."""

    def __init__(self, name: str, requests: int, replies: Iterator[bytes]) -> None:
        self._name, self._requests, self._replies = name, requests, replies

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        request = {
            "function": self._name,
            "arguments": [values.encode(each) for each in arguments],
            "named": {name: values.encode(each) for name, each in named.items()},
        }
        reply = _exchange(self._requests, self._replies, json.dumps(request).encode() + b"\n")
        if "value" in reply:
            return values.decode(reply["value"])
        kind = getattr(builtins, str(reply.get("raised")), None)
        message = str(reply.get("message"))
        if isinstance(kind, type) and issubclass(kind, Exception):
            raise kind(message)
        raise RuntimeError(f"{reply.get('raised')}: {message}")


def _exchange(requests: int, replies: Iterator[bytes], request: bytes) -> dict[str, Any]:
    try:
        while request:
            request = request[os.write(requests, request) :]
        reply = json.loads(next(replies))
    except (OSError, StopIteration, ValueError, RecursionError) as error:
        raise ProgramEndedError from error
    if not isinstance(reply, dict):
        raise ProgramEndedError
    return reply


def run(job: dict[str, Any], requests: int, replies: int, report: int) -> None:
    """Run the test code and report what came of it."""
    lines = iter(os.fdopen(replies, "rb", closefd=False))
    outcome = _outcome(job, requests, lines)
    os.write(report, json.dumps(outcome).encode())


def _outcome(job: dict[str, Any], requests: int, replies: Iterator[bytes]) -> dict[str, str]:
    try:
        tree = ast.parse(job["code"])
        code = compile(tree, "test.py", "exec")
        names: dict[str, Any] = {"__name__": "test"}
        exec(compile(job["prompt"], "prompt.py", "exec"), names)  # noqa: S102
    except SyntaxError as error:
        return {"outcome": "broken_test", "message": f"the test code does not compile: {error}"[:200]}
    defined = set(names)
    stand_ins = {name: Remote(name, requests, replies) for name in _unbound(tree) - defined - set(dir(builtins))}
    function = job["function"]
    if function:
        stand_ins[function] = Remote(function, requests, replies)
    names |= stand_ins
    try:
        if not next(replies, b""):
            raise ProgramEndedError
        exec(code, names)  # noqa: S102
        if function and callable(names.get(ENTRY)) and ENTRY not in stand_ins:
            names[ENTRY](stand_ins[function])
    except ProgramEndedError:
        return {"outcome": "program_ended"}
    except AssertionError as error:
        return {"outcome": "failed", "message": str(error)[:200]}
    except Exception as error:  # noqa: BLE001  # a value of the wrong type raises anything in the test code
        return {"outcome": "failed", "message": f"{type(error).__name__}: {error}"[:200]}
    return {"outcome": "passed"}


def _unbound(tree: ast.AST) -> set[str]:
    """Names that the test code reads and nobody in it defines."""
    read: set[str] = set()
    defined: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
    return read - defined
