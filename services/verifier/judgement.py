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
    explanation: dict[str, Any] = {}  # what `?explain=true` adds to the detail

    def shown(self, explain: bool) -> dict[str, Any]:
        return self.detail | self.explanation if explain else self.detail


def accepted(answer: str, **explanation: Any) -> Judgement:
    """`answer` is the canonical text, which equal answers share."""
    return Judgement(Verdict.ACCEPTED, 1.0, {"answer": answer}, _shown(explanation))


def wrong(reason: str, answer: str | None = None, **explanation: Any) -> Judgement:
    detail = {} if answer is None else {"answer": answer}
    return Judgement(Verdict.WRONG_ANSWER, 0.0, detail, _shown(explanation | {"reason": reason}))


def undetermined(reason: str, answer: str | None = None, **explanation: Any) -> Judgement:
    """Without a score the reason is told unasked."""
    detail = {} if answer is None else {"answer": answer}
    return Judgement(Verdict.UNDETERMINED, None, detail | _shown({"reason": reason}), _shown(explanation))


def sandbox_error(reason: str, **detail: Any) -> Judgement:
    return Judgement(Verdict.SANDBOX_ERROR, None, _shown(detail | {"reason": reason}))


def _shown(detail: dict[str, Any]) -> dict[str, Any]:
    return {key: _cut(value) if isinstance(value, str) else value for key, value in detail.items() if value is not None}


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
