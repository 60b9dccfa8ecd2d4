"""From what a program did to a verdict. Runs outside the sandbox; expected values never leave this side."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import msgspec

from potstill.contracts.verification import Limits, Verdict
from services.verifier.sandbox import values
from services.verifier.sandbox.cases import CallCase, Case, CodeCase, StdinCase, plain_assertion
from services.verifier.sandbox.comparison import same_output, same_value
from services.verifier.sandbox.probing import Sandboxes
from services.verifier.sandbox.runner import Order, Outcome, Sandbox, SandboxFailedError, run

SHOWN = 200


class TestResult(msgspec.Struct, frozen=True, omit_defaults=True):
    verdict: Verdict
    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    reason: str = ""
    printed: str = ""  # the end of what it wrote to standard error, or the beginning of its wrong output
    separate_check: bool = False  # opaque test code decided, in a process apart from the program


class Report(msgspec.Struct, frozen=True):
    """What a program's process says of itself: worth no more than the program."""

    outcome: str = ""
    value: Any = None
    type: str = ""
    message: str = ""


def judge_case(sandboxes: Sandboxes, program: str, case: Case, function: str | None, limits: Limits) -> TestResult:
    """Run one test. Raises SandboxFailedError."""
    if isinstance(case, StdinCase):
        return _judge_stdin(sandboxes.programs, program, case, limits)
    if isinstance(case, CallCase):
        assert function is not None
        return _judge_call(sandboxes.programs, program, function, case.arguments, case.expected, limits, case.tolerance)
    program = f"{case.prompt}\n{program}" if case.prompt else program
    call = plain_assertion(case.code)
    if call is not None:
        return _judge_call(
            sandboxes.programs, program, call.function, call.arguments, call.expected, limits, from_json=False
        )
    return _judge_code(sandboxes, program, case, function, limits)


def _judge_stdin(sandbox: Sandbox, program: str, case: StdinCase, limits: Limits) -> TestResult:
    job = {"mode": "stdin", "source": program}
    stdin, expected = case.stdin.encode(), case.stdout.encode()
    [outcome] = run((sandbox, Order(job, limits, stdin, limits.output_bytes + len(expected))))
    failure = _failure(outcome, limits)
    if failure is not None:
        return failure
    if outcome.ended.status:
        return _result(Verdict.RUNTIME_ERROR, outcome, _how_it_ended(outcome), outcome.stderr[-SHOWN:])
    if same_output(outcome.stdout.decode(errors="replace"), case.stdout, case.tolerance):
        return _result(Verdict.ACCEPTED, outcome)
    return _result(Verdict.WRONG_ANSWER, outcome, "another output", outcome.stdout[:SHOWN])


def _judge_call(
    sandbox: Sandbox,
    program: str,
    function: str,
    arguments: list[Any],
    expected: Any,
    limits: Limits,
    tolerance: float = 0.0,
    from_json: bool = True,
) -> TestResult:
    job = {
        "mode": "call",
        "source": program,
        "function": function,
        "arguments": [values.encode(each) for each in arguments],
    }
    size = len(json.dumps(values.encode(expected)))
    [outcome] = run((sandbox, Order(job, limits, output_bytes=limits.output_bytes + size)))
    failure = _failure(outcome, limits)
    if failure is not None:
        return failure
    report = _report(outcome)
    if report.outcome == "raised":
        return _result(Verdict.RUNTIME_ERROR, outcome, f"{report.type}: {report.message}", outcome.stderr[-SHOWN:])
    if report.outcome == "returned":
        return _judge_value(outcome, report.value, expected, tolerance, from_json)
    if outcome.ended.status:
        return _result(Verdict.RUNTIME_ERROR, outcome, _how_it_ended(outcome), outcome.stderr[-SHOWN:])
    reason = report.message or "it returned nothing that can be read"
    return _result(Verdict.WRONG_ANSWER, outcome, reason)


def _judge_value(outcome: Outcome, encoded: Any, expected: Any, tolerance: float, from_json: bool) -> TestResult:
    try:
        returned = values.decode(encoded)
        right = same_value(returned, expected, tolerance, from_json)
    except (values.NotDataError, RecursionError) as error:
        return _result(Verdict.WRONG_ANSWER, outcome, f"what it returned cannot be read: {error}")
    if right:
        return _result(Verdict.ACCEPTED, outcome)
    return _result(Verdict.WRONG_ANSWER, outcome, "another value", json.dumps(encoded)[:SHOWN].encode())


def _judge_code(sandboxes: Sandboxes, program: str, case: CodeCase, function: str | None, limits: Limits) -> TestResult:
    """Run the program, and the test code in a process that has no part of the program."""
    requests, replies = os.pipe(), os.pipe()
    served = {"mode": "serve", "source": program}
    check = {"mode": "check", "code": case.code, "prompt": case.prompt, "function": function}
    serving = Order(served, limits, output_bytes=limits.output_bytes, more_files=(requests[0], replies[1]))
    checking = Order(check, limits, output_bytes=limits.output_bytes, more_files=(requests[1], replies[0]))
    outcome, checked = run((sandboxes.programs, serving), (sandboxes.checks, checking))
    report = _report(checked)
    if report.outcome == "broken_test":
        return _result(Verdict.UNDETERMINED, outcome, report.message, separate_check=True)
    if report.outcome == "passed" and checked.ended.status == 0:
        return _result(Verdict.ACCEPTED, outcome, separate_check=True)
    failure = _failure(outcome, limits)
    if failure is not None:
        return msgspec.structs.replace(failure, separate_check=True)
    if report.outcome == "failed":
        return _result(Verdict.WRONG_ANSWER, outcome, report.message or "an assertion failed", separate_check=True)
    own = _report(outcome)
    if report.outcome == "program_ended":
        if own.outcome == "raised":
            reason = f"{own.type}: {own.message}"
            return _result(Verdict.RUNTIME_ERROR, outcome, reason, outcome.stderr[-SHOWN:], separate_check=True)
        verdict = Verdict.RUNTIME_ERROR if outcome.ended.status else Verdict.WRONG_ANSWER
        return _result(verdict, outcome, own.message or "it ended before the test did", separate_check=True)
    return _result(Verdict.UNDETERMINED, outcome, "the test code did not come to an end", separate_check=True)


def _failure(outcome: Outcome, limits: Limits) -> TestResult | None:
    """The verdict of a program that broke a limit or could not be compiled. Raises SandboxFailedError."""
    ended, report = outcome.ended, _report(outcome)
    if outcome.stopped == "output":
        return _result(Verdict.OUTPUT_LIMIT, outcome, "it wrote more than it may")
    killed = ended.status == -signal.SIGKILL
    if ended.out_of_time or ended.cpu_seconds >= limits.cpu_seconds:
        return _result(Verdict.TIME_LIMIT, outcome, f"it used {ended.cpu_seconds:.1f} s of CPU time")
    if outcome.stopped == "wall":
        if outcome.wall_seconds - outcome.waited_seconds < limits.wall_seconds:
            return _result(Verdict.UNDETERMINED, outcome, "others kept it from running: the machine is too busy")
        return _result(Verdict.TIME_LIMIT, outcome, f"it ran for {outcome.wall_seconds:.1f} s")
    if killed:
        raise SandboxFailedError("somebody killed the program")
    if report.outcome == "memory":
        return _result(Verdict.MEMORY_LIMIT, outcome, "an allocation failed")
    if report.outcome == "compile_error":
        return _result(Verdict.COMPILE_ERROR, outcome, report.message)
    return None


def _printable(text: str) -> str:
    """Half a surrogate pair, which a program can put into anything, cannot be sent."""
    return text.encode(errors="replace").decode()


def _report(outcome: Outcome) -> Report:
    try:
        document = json.loads(outcome.report)
        return msgspec.convert(document, Report)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return Report()


def _how_it_ended(outcome: Outcome) -> str:
    status = outcome.ended.status
    if status >= 0:
        report = _report(outcome)
        return f"{report.type}: {report.message}" if report.outcome == "raised" else f"it ended with status {status}"
    names = {each.value: each.name for each in signal.Signals}
    return f"it was ended by {names.get(-status, -status)}"


def _result(
    verdict: Verdict, outcome: Outcome, reason: str = "", printed: bytes = b"", separate_check: bool = False
) -> TestResult:
    return TestResult(
        verdict,
        round(outcome.wall_seconds, 4),
        round(outcome.ended.cpu_seconds, 4),
        outcome.ended.peak_bytes,
        _printable(reason[:SHOWN]),
        printed.decode(errors="replace"),
        separate_check,
    )
