"""Liveness of an engine that is at work."""

from __future__ import annotations

import time

from services.teacher.progress import Progress


def test_an_engine_is_idle_until_a_unit_begins_and_after_the_last_one_ends() -> None:
    progress = Progress()
    assert progress.is_idle
    with progress.unit(), progress.unit():
        assert not progress.is_idle
    assert progress.is_idle


def test_time_counts_from_the_last_unit_that_ended() -> None:
    progress = Progress()
    with progress.unit():
        time.sleep(0.05)
        assert progress.seconds_since_moved >= 0.05
        with progress.unit():
            pass
        assert progress.seconds_since_moved < 0.05
