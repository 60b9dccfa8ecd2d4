"""What happens in a program's own process once the layers are on. It is not trusted: the program can change all of it.

So nothing here knows what the answer should be, and no report from here says "right". The worst that a program can do
is to report a value that it did not return, which is worth as much as returning it.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import random
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn

from services.verifier.sandbox import checker, values

REPORT, JOB, STARTED, REQUESTS, REPLIES = 3, 4, 5, 6, 7
MAX_TRACEBACK = 2000


def warm_up() -> None:
    """Run once what every program needs, so that each finds it done."""
    json.loads(json.dumps(values.encode([1, 2.5, "x", (None, True)])))
    exec(compile("x = [i for i in range(3)]\nprint(*x, file=__import__('io').StringIO())", "<warm-up>", "exec"), {})  # noqa: S102
    random.seed()


def run() -> NoReturn:
    """Do the job that lies in its file, and end the process."""
    code = 1
    try:
        code = _run(_read_job())
    except BaseException as error:  # noqa: BLE001  # whatever a program raises ends here
        code = _report_error(error)
    finally:
        os._exit(code & 0xFF)


def _read_job() -> dict[str, Any]:
    parts = []
    while part := os.read(JOB, 1 << 20):
        parts.append(part)
    os.close(JOB)
    job: dict[str, Any] = json.loads(b"".join(parts))
    return job


def _run(job: dict[str, Any]) -> int:
    random.seed()
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)),
        encoding="utf-8",
        errors="backslashreplace",
        write_through=True,
    )
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    sys.argv = ["solution.py"]
    if job["mode"] == "check":
        checker.run(job, REQUESTS, REPLIES, REPORT)
        return 0
    try:
        code = compile(job["source"], "solution.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError) as error:
        _report({"outcome": "compile_error", "message": _message(error)})
        _print_exception(error)
        return 1
    if job["mode"] == "stdin":
        return _run_script(code)
    return _run_functions(code, job)


def _run_script(code: types.CodeType) -> int:
    try:
        exec(code, _module("__main__"))  # noqa: S102
        status = 0
    except SystemExit as ending:
        status = _exit_status(ending)
    _finish()
    return status


def _run_functions(code: types.CodeType, job: dict[str, Any]) -> int:
    # Not __main__, so that a demonstration under `if __name__ == "__main__"` does not run.
    names = _module("solution")
    try:
        exec(code, names)  # noqa: S102
    except SystemExit as ending:
        _report({"outcome": "exited", "message": f"it ended with status {_exit_status(ending)} while it was loaded"})
        return 0
    if job["mode"] == "serve":
        os.write(REPLIES, b"{}\n")
        serve(names)
        return 0
    function = _find(names, job["function"])
    if function is None:
        _report({"outcome": "missing", "message": f"it defines no {job['function']}"})
        return 0
    value = function(*[values.decode(each) for each in job["arguments"]])
    _report_value(value)
    return 0


def _module(name: str) -> dict[str, Any]:
    module = types.ModuleType(name)
    module.__dict__["__builtins__"] = __builtins__
    module.__dict__["__file__"] = "solution.py"
    sys.modules[name] = module
    return module.__dict__


def _find(names: dict[str, Any], name: str) -> Callable[..., Any] | None:
    """A function, or a method of a class `Solution`."""
    function = names.get(name)
    if callable(function):
        return function  # type: ignore[no-any-return]
    solution = names.get("Solution")
    if isinstance(solution, type) and callable(getattr(solution, name, None)):
        return getattr(solution(), name)  # type: ignore[no-any-return]
    return None


def serve(names: dict[str, Any]) -> None:
    """Answer a checker's calls until it hangs up. One line each way."""
    for line in io.BufferedReader(io.FileIO(REQUESTS, closefd=False)):
        request = json.loads(line)
        reply = _answer(names, request)
        _write_all(REPLIES, json.dumps(reply).encode() + b"\n")


def _answer(names: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    try:
        function = _find(names, request["function"])
        if function is None:
            return {"raised": "NameError", "message": f"it defines no {request['function']}"}
        arguments = [values.decode(each) for each in request["arguments"]]
        named = {name: values.decode(each) for name, each in request["named"].items()}
        value = function(*arguments, **named)
    except SystemExit:
        raise
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001  # a test may expect it
        return {"raised": type(error).__name__, "message": _message(error)}
    try:
        return {"value": values.encode(value)}
    except values.NotDataError as error:
        return {"raised": "NotDataError", "message": _message(error)}


def _finish() -> None:
    """What an interpreter does at its end."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (getattr(sys, "stdout", None), sys.__stdout__):
        if stream is not None and not stream.closed:
            stream.flush()


def _exit_status(ending: SystemExit) -> int:
    if ending.code is None or isinstance(ending.code, int):
        return ending.code or 0
    print(ending.code, file=sys.stderr)  # noqa: T201
    return 1


def _report_value(value: Any) -> None:
    try:
        _report({"outcome": "returned", "value": values.encode(value)})
    except (values.NotDataError, RecursionError) as error:
        _report({"outcome": "not_data", "message": _message(error)})


def _report_error(error: BaseException) -> int:
    if isinstance(error, MemoryError):
        os.write(REPORT, b'{"outcome": "memory"}')
        return 1
    if isinstance(error, SystemExit):
        return _exit_status(error)
    try:
        _report({"outcome": "raised", "type": type(error).__name__, "message": _message(error)})
        _print_exception(error)
        _finish()
    except MemoryError:
        os.write(REPORT, b'{"outcome": "memory"}')
    return 1


def _print_exception(error: BaseException) -> None:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-8))
    _write_all(2, text[-MAX_TRACEBACK:].encode(errors="replace"))


def _message(error: BaseException) -> str:
    try:
        return str(error)[:200]
    except BaseException:  # noqa: BLE001  # a program's own exception may not even print
        return ""


def _report(document: dict[str, Any]) -> None:
    _write_all(REPORT, json.dumps(document).encode())


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
