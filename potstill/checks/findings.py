"""What a check found. Checks collect; only the end decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True)
class Finding:
    """One reason against a job: where in the spec, and what to do about it."""

    code: str
    field: str
    message: str


@dataclass
class Findings:
    """Reasons to refuse, services that could not be asked, and what the user should know anyway."""

    refusals: list[Finding] = field(default_factory=list)
    unanswered: list[Finding] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def refuse(self, code: str, field: str, message: str) -> None:
        self.refusals.append(Finding(code, field, message))

    def __iadd__(self, other: Findings) -> Self:
        self.refusals += other.refusals
        self.unanswered += other.unanswered
        self.warnings += other.warnings
        return self
