"""What is refused before it waits: items that no worker can judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from potstill.contracts.verification import Limits, VerifyItem
from potstill.service.errors import FieldError, UnprocessableError
from services.verifier.kinds import BY_TESTS, MODULES
from services.verifier.sandbox.cases import problems


def check_items(items: Sequence[VerifyItem], unavailable: Mapping[str, str], largest: Limits) -> None:
    """Name every item that cannot be judged. Raises UnprocessableError.

    `unavailable`: kinds that this host cannot judge, and why.
    """
    known = sorted(set(MODULES) - set(unavailable))
    unknown = [
        FieldError(f"items.{i}.kind", _why_unknown(item.kind, unavailable))
        for i, item in enumerate(items)
        if item.kind not in known
    ]
    _refuse(unknown, "unknown_kind", f"; this verifier knows {', '.join(known)}")
    bare = [
        FieldError(f"items.{i}.reference", f"kind {item.kind} compares with a reference, and there is none")
        for i, item in enumerate(items)
        if item.kind not in BY_TESTS and item.reference is None
    ]
    _refuse(bare, "missing_reference")
    tested = [(i, item) for i, item in enumerate(items) if item.kind in BY_TESTS]
    _refuse(
        [FieldError(f"items.{i}.{at}", what) for i, item in tested for at, what in problems(item)], "malformed_tests"
    )
    _refuse([FieldError(f"items.{i}.limits", what) for i, item in tested for what in _excess(item, largest)], "limits")


def _why_unknown(kind: str, unavailable: Mapping[str, str]) -> str:
    return (
        f"kind {kind} cannot be judged on this host: {unavailable[kind]}"
        if kind in unavailable
        else f"unknown kind {kind!r}"
    )


def _excess(item: VerifyItem, largest: Limits) -> list[str]:
    asked, most = msgspec.structs.asdict(item.limits or Limits()), msgspec.structs.asdict(largest)
    return [f"{name} must be above 0 and at most {most[name]:g}" for name in most if not 0 < asked[name] <= most[name]]


def _refuse(errors: list[FieldError], code: str, more: str = "") -> None:
    if errors:
        raise UnprocessableError(f"{errors[0].field}: {errors[0].message}{more}", code=code, errors=tuple(errors))
