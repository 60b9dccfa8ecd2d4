"""What the verifier service is asked, and what it answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

WIDEST_INTEGERS = range(-(2**63), 2**64)  # what a message can carry
WIDE_INTEGER = (
    "a test holds an integer of more than 64 bits, which no message carries: write it as test code, "
    '{"code": "assert f(…) == …"}'
)


class Verdict(StrEnum):
    """The outcome of one verification. The last two are no judgement of the response and carry no score."""

    ACCEPTED = "accepted"
    WRONG_ANSWER = "wrong_answer"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    UNDETERMINED = "undetermined"
    SANDBOX_ERROR = "sandbox_error"

    @property
    def is_score(self) -> bool:
        """Whether the verdict judges the response."""
        return self not in (Verdict.UNDETERMINED, Verdict.SANDBOX_ERROR)


class Limits(msgspec.Struct, frozen=True):
    wall_seconds: float = 6.0
    cpu_seconds: float = 5.0
    memory_bytes: int = 512 * 2**20
    output_bytes: int = 64 * 2**10


class VerifyItem(msgspec.Struct, frozen=True):
    id: str
    kind: str  # a name in the verifier's registry
    response: str
    reference: str | None = None
    tests: tuple[dict[str, Any], ...] = ()
    function: str | None = None
    limits: Limits | None = None  # of each test
    stop_early: bool = True  # leave out tests that come after a failed one


class VerifyRequest(msgspec.Struct, frozen=True):
    items: tuple[VerifyItem, ...]


class VerifyResult(msgspec.Struct, frozen=True):
    id: str
    verdict: Verdict
    score: float | None  # in [0, 1]; None exactly when the verdict is no score
    detail: dict[str, Any] = {}


class VerifyResponse(msgspec.Struct, frozen=True):
    results: tuple[VerifyResult, ...]
    isolation: tuple[str, ...] = ()


def holds_wide_integer(value: Any) -> bool:
    """Whether a test, read from JSON, holds an integer that no message carries."""
    if isinstance(value, dict):
        return any(map(holds_wide_integer, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_wide_integer, value))
    return isinstance(value, int) and value not in WIDEST_INTEGERS
