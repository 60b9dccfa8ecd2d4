"""An item of several tests is judged test by test: they run side by side, and other requests take turns with them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec

from potstill.contracts.verification import Verdict, VerifyItem
from services.verifier.judgement import Judgement
from services.verifier.kinds import BY_TESTS

NOT_RUN = {"verdict": "not_run"}


def count(item: VerifyItem) -> int:
    return len(item.tests) if item.kind in BY_TESTS else 1


def split(item: VerifyItem) -> list[VerifyItem]:
    if item.kind not in BY_TESTS:
        return [item]
    return [msgspec.structs.replace(item, tests=(test,)) for test in item.tests]


@dataclass(eq=False)
class Progress:
    """How far an item's tests have come."""

    stop_early: bool
    first_failure: int | None = None

    def note(self, place: int, judgement: Judgement) -> None:
        if judgement.score == 0.0 and (self.first_failure is None or place < self.first_failure):
            self.first_failure = place

    def makes_needless(self, place: int) -> bool:
        """Whether the test at `place` can no longer change the verdict, and nobody asked for it."""
        return self.stop_early and self.first_failure is not None and place > self.first_failure


def join(item: VerifyItem, judgements: list[Judgement | None]) -> Judgement:
    """The verdict of an item from those of its tests; None is a test that was not run.

    A failed test decides, the first of them, even when another could not be judged; otherwise such a one decides.
    """
    if item.kind not in BY_TESTS:
        [judgement] = judgements
        assert judgement is not None
        return judgement
    judged = [judgement for judgement in judgements if judgement is not None]
    decisive = next((each for each in judged if each.score == 0.0), None)
    decisive = decisive or next((each for each in judged if each.score is None), judged[0])
    verdicts = Counter(each.verdict for each in judged)
    detail: dict[str, Any] = {"passed": verdicts[Verdict.ACCEPTED], "total": len(judgements)}
    if decisive.score != 1.0:
        detail["reason"] = decisive.detail.get("reason", "")
    detail["tests"] = [NOT_RUN if each is None else {"verdict": each.verdict, **each.detail} for each in judgements]
    return Judgement(decisive.verdict, decisive.score, detail)
