from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.overlap import Overlap, page
from benchmarks.watched import Moment, Step, Watched, seconds_of, steps_of
from potstill.contracts.job import Job, JobSpec, Progress
from potstill.contracts.state import JobState


def step(waiting: float, learning: float, *, overlap: bool = False) -> Step:
    total = max(waiting, learning) if overlap else waiting + learning
    phases = {"forward": learning, "backward": 0.0, "optimizer": 0.0, "publish": 0.0, "checkpoint": 0.0}
    seconds = {f"seconds_{phase}": value for phase, value in phases.items()}
    return seconds | {"seconds_waiting": waiting, "tokens": 1000, "tokens_per_second": 1000 / total}


@pytest.fixture
def watched() -> Watched:
    before = Moment(100.0, {"learner": 10.0, "valkey": 1.0}, {"learner": {"calls{take}": 2.0}}, 0.0)
    after = Moment(
        110.0, {"learner": 19.0, "valkey": 1.01}, {"learner": {"calls{take}": 5.0, "calls{issue}": 1.0}}, 0.0
    )
    spec = {"name": "a", "student": {"model": "m"}, "teachers": {"t": {"model": "m"}}, "data": {"train": "t"}}
    job = Job(
        id="job_a",
        status=JobState.SUCCEEDED,
        created_at=0,
        spec=JobSpec.model_validate(spec),
        progress=Progress(),
    )
    return Watched(job, [], before, after, 1.0)


def test_shares_and_counters_are_those_of_the_window(watched: Watched) -> None:
    assert watched.busy == {"learner": 90.0}, "what used less than a hundredth of a core is left out"
    assert watched.changes("learner", "calls") == {"take": 3.0, "issue": 1.0}


def test_a_line_that_is_being_written_is_no_step_yet(tmp_path: Path) -> None:
    assert steps_of(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1}) + "\n" + '{"step": 2')
    assert [each["step"] for each in steps_of(tmp_path)] == [1]


def test_a_step_in_turns_takes_the_sum_and_one_that_overlaps_the_longer() -> None:
    turns = [step(4.0, 6.0)] * 3
    overlapped = [step(4.0, 6.0, overlap=True)] * 3
    assert seconds_of(turns[0]) == pytest.approx(10.0)
    overlap = Overlap.of(turns, overlapped)
    assert (overlap.longer, overlap.both) == (6.0, 10.0)
    assert (overlap.in_turns, overlap.overlapped) == pytest.approx((10.0, 6.0))
    assert "| step at 1 over the longer, over the sum | 1.00, 0.60 |" in page(overlap, 8)
