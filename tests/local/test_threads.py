from __future__ import annotations

import pytest

from potstill.local.threads import Threads


@pytest.mark.parametrize(
    ("cores", "overlapping", "expected"),
    [
        (2, True, Threads(student=1, teacher=1, learner=1)),
        (2, False, Threads(student=2, teacher=2, learner=2)),
        (1, True, Threads(student=1, teacher=1, learner=1)),
        (9, True, Threads(student=4, teacher=4, learner=5)),
    ],
)
def test_cores_are_halved_only_between_processes_that_compute_at_the_same_time(
    cores: int, overlapping: bool, expected: Threads
) -> None:
    assert Threads.split(cores, overlapping=overlapping) == expected
