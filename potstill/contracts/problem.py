"""One row of a data set, as it travels in a ticket."""

from __future__ import annotations

from typing import Any

import msgspec


class Message(msgspec.Struct, frozen=True):
    role: str
    content: str


class Problem(msgspec.Struct, frozen=True):
    id: str
    prompt: tuple[Message, ...]
    kind: str = "math"  # the verifier that judges a response
    reference: str | None = None  # the expected answer
    solution: str | None = None  # a worked solution, for teachers that may see it
    teacher: str | None = None
    data_source: str = ""
    tests: tuple[dict[str, Any], ...] = ()
    function: str | None = None

    @property
    def is_verifiable(self) -> bool:
        """Whether there is anything to verify a response by."""
        return self.reference is not None or bool(self.tests)
