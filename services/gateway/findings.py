"""What becomes of what the checks found."""

from __future__ import annotations

from potstill.checks.findings import Finding, Findings
from potstill.service.errors import FieldError
from services.gateway.errors import JobRefusedError, NotConfiguredError, ServiceDownError


def raise_if_any(findings: Findings) -> None:
    """Raises one error that carries every finding.

    What the user can mend comes first: a job that is wrong is refused as wrong even while a service is down.
    """
    if not findings.refusals and not findings.unanswered:
        return
    found = findings.refusals + findings.unanswered
    errors = tuple(FieldError(finding.field, finding.message) for finding in found)
    detail = "; ".join(f"{error.field}: {error.message}" for error in errors)
    if findings.refusals:
        raise JobRefusedError(detail, code=_only_code(findings.refusals) or JobRefusedError.code, errors=errors)
    kind = NotConfiguredError if _only_code(findings.unanswered) == NotConfiguredError.code else ServiceDownError
    raise kind(detail, errors=errors)


def _only_code(findings: list[Finding]) -> str | None:
    codes = {finding.code for finding in findings}
    return codes.pop() if len(codes) == 1 else None
