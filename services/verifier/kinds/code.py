"""Kind `code`: a program passes tests, in a sandbox that never holds what they expect. See docs/sandbox.md."""

from __future__ import annotations

import msgspec

from potstill.contracts.verification import Limits, Verdict, VerifyItem
from services.verifier.judgement import Judgement
from services.verifier.kinds import Kind, KindUnavailableError, Prepared
from services.verifier.sandbox.cases import read_case
from services.verifier.sandbox.extraction import program_of
from services.verifier.sandbox.judging import TestResult, judge_case
from services.verifier.sandbox.probing import Sandboxes, start
from services.verifier.sandbox.runner import SandboxFailedError
from services.verifier.settings import SandboxOptions

_sandboxes: Sandboxes | None = None


def prepare(options: SandboxOptions) -> Prepared:
    """Start a fork server and try to break out of it. Raises KindUnavailableError."""
    global _sandboxes
    try:
        _sandboxes = start(options)
    except SandboxFailedError as error:
        raise KindUnavailableError(str(error)) from error
    return Prepared(_sandboxes.layers, _sandboxes.missing)


def judge(item: VerifyItem) -> Judgement:
    """Run an item's one test: items come test by test. Raises SandboxFailedError where the program did not fail."""
    assert _sandboxes is not None
    [test] = item.tests
    case = read_case(test, item.function)
    result = judge_case(_sandboxes, program_of(item.response), case, item.function, item.limits or Limits())
    return Judgement(result.verdict, _score(result), msgspec.to_builtins(result))


def _score(result: TestResult) -> float | None:
    return float(result.verdict == Verdict.ACCEPTED) if result.verdict.is_score else None


KIND = Kind(
    judge,
    VerifyItem(
        "self-test", "code", "```python\nprint(int(input()) + 1)\n```", tests=({"stdin": "41\n", "stdout": "42"},)
    ),
    prepare,
)
