"""What a check found. Checks collect; only the end decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from potstill.service.errors import FieldError
from services.gateway.errors import JobRefusedError, NotConfiguredError, ServiceDownError


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

    def raise_if_any(self) -> None:
        """Raises one error that carries every finding.

        What the user can mend comes first: a job that is wrong is refused as wrong even while a service is down.
        """
        if not self.refusals and not self.unanswered:
            return
        found = self.refusals + self.unanswered
        errors = tuple(FieldError(finding.field, finding.message) for finding in found)
        detail = "; ".join(f"{error.field}: {error.message}" for error in errors)
        if self.refusals:
            raise JobRefusedError(detail, code=_only_code(self.refusals) or JobRefusedError.code, errors=errors)
        kind = NotConfiguredError if _only_code(self.unanswered) == NotConfiguredError.code else ServiceDownError
        raise kind(detail, errors=errors)


def _only_code(findings: list[Finding]) -> str | None:
    codes = {finding.code for finding in findings}
    return codes.pop() if len(codes) == 1 else None
