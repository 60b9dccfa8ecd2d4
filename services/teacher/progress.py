"""Telling an engine that is busy from one that is stuck."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Progress:
    """Counts units of work in an engine.

    An engine at work cannot be asked anything else in good time: it is alive as long as units end.
    """

    def __init__(self) -> None:
        self._num_units = 0
        self._moved = 0.0

    @contextlib.contextmanager
    def unit(self) -> Iterator[None]:
        if self.is_idle:
            self._moved = time.monotonic()
        self._num_units += 1
        try:
            yield
        finally:
            self._num_units -= 1
            self._moved = time.monotonic()

    @property
    def is_idle(self) -> bool:
        return self._num_units == 0

    @property
    def seconds_since_moved(self) -> float:
        """Since a unit ended, or the first one began."""
        return time.monotonic() - self._moved
