"""What a kind says of one response; the only thing that leaves a worker."""

from __future__ import annotations

from typing import Any

import msgspec

from potstill.contracts.verification import Verdict

SHOWN_CHARACTERS = 200


class Judgement(msgspec.Struct, frozen=True):
    """A verdict and what led to it. `score` is None exactly when the verdict is no score."""

    verdict: Verdict
    score: float | None
    detail: dict[str, Any] = {}


def accepted(**detail: Any) -> Judgement:
    return Judgement(Verdict.ACCEPTED, 1.0, _shown(detail))


def wrong(reason: str, **detail: Any) -> Judgement:
    return Judgement(Verdict.WRONG_ANSWER, 0.0, _shown(detail | {"reason": reason}))


def undetermined(reason: str, **detail: Any) -> Judgement:
    return Judgement(Verdict.UNDETERMINED, None, _shown(detail | {"reason": reason}))


def sandbox_error(reason: str, **detail: Any) -> Judgement:
    return Judgement(Verdict.SANDBOX_ERROR, None, _shown(detail | {"reason": reason}))


def _shown(detail: dict[str, Any]) -> dict[str, Any]:
    return {key: _cut(value) if isinstance(value, str) else value for key, value in detail.items() if value is not None}


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
