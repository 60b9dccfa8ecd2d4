"""A bound on the samples that are admitted and not answered yet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from potstill.service.errors import OverloadedError
from services.student import metrics

RETRY_SECONDS = 2.0


class Admission:
    """Counts samples in; refuses what would exceed the limit rather than letting a queue grow."""

    def __init__(self, max_pending: int) -> None:
        self._max_pending = max_pending
        self._pending = 0

    @contextlib.contextmanager
    def admit(self, samples: int) -> Iterator[None]:
        """Hold room for `samples`. Raises OverloadedError when there is none."""
        if self._pending + samples > self._max_pending:
            raise OverloadedError(
                f"{self._pending} samples are pending and the limit is {self._max_pending} "
                f"(POTSTILL_STUDENT_MAX_PENDING): wait, or add a replica",
                retry_after=RETRY_SECONDS,
            )
        self._resize(samples)
        try:
            yield
        finally:
            self._resize(-samples)

    def _resize(self, samples: int) -> None:
        self._pending += samples
        metrics.samples_pending.set(self._pending)
