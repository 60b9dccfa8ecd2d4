from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from potstill.cli.summary import Curves, plot_curves, print_result, summary_document, write_summary
from potstill.contracts.job import Event, HeldoutResult, Job, JobSpec, Progress, StepMetrics
from potstill.contracts.state import JobState

SPEC = JobSpec.model_validate(
    {"name": "demo", "student": {"model": "s"}, "teachers": {"t": {"model": "m"}}, "data": {"train": "t.jsonl"}}
)
HELDOUT = HeldoutResult(
    n=96,
    before=0.18,
    after=0.93,
    gain=0.75,
    interval=(0.65, 0.84),
    before_interval=(0.1, 0.26),
    after_interval=(0.87, 0.98),
)


@pytest.fixture
def succeeded() -> Job:
    return Job(
        id="job_1",
        status=JobState.SUCCEEDED,
        created_at=0,
        spec=SPEC,
        progress=Progress(step=20, steps=20),
        heldout=HELDOUT,
        checkpoint="/out/final",
    )


def test_the_summary_has_the_shape_that_others_read(succeeded: Job, tmp_path: Path) -> None:
    written = json.loads(write_summary(tmp_path, summary_document(succeeded, 412.34)).read_text())
    assert {"job_id": "job_1", "steps": 20, "seconds": 412.3, "checkpoint": "/out/final"}.items() <= written.items()
    assert {"n": 96, "before": 0.18, "after": 0.93, "gain": 0.75, "interval": [0.65, 0.84]}.items() <= written[
        "heldout"
    ].items()


def test_a_job_that_failed_has_a_summary_without_results(tmp_path: Path) -> None:
    failed = Job(id="job_1", status=JobState.FAILED, created_at=0, spec=SPEC, progress=Progress(step=3, steps=20))
    written = json.loads(write_summary(tmp_path, summary_document(failed, 9.0)).read_text())
    assert (written["status"], written["steps"], written["heldout"], written["checkpoint"]) == ("failed", 3, None, None)


def test_the_table_shows_both_accuracies_and_the_paired_gain_with_intervals(succeeded: Job) -> None:
    sink = io.StringIO()
    print_result(Console(file=sink, width=100), succeeded, 412.0)
    lines = sink.getvalue()
    assert "0.180" in lines
    assert "0.870 to 0.980" in lines
    assert "+0.650 to +0.840" in lines
    assert "/out/final" in lines
    assert "6:52" in lines


def test_the_error_of_a_failed_job_is_printed() -> None:
    sink = io.StringIO()
    error = {"code": "too_many_tombstones", "detail": "5 of 8 tickets"}
    job = Job(id="j", status=JobState.FAILED, created_at=0, spec=SPEC, progress=Progress(), error=error)
    print_result(Console(file=sink, width=100), job, 1.0)
    assert "too_many_tombstones: 5 of 8 tickets" in sink.getvalue()


def test_curves_take_a_replayed_step_as_it_was_last(succeeded: Job, tmp_path: Path) -> None:
    steps = [
        StepMetrics(id=f"{i}-0", step=s, values={"reverse_kl": v}) for i, (s, v) in enumerate([(1, 9.0), (1, 0.5)])
    ]
    events = [
        Event(id="0-0", created_at=0, message="", data={"step": s, "accuracy": a}) for s, a in ((0, 0.1), (10, 0.6))
    ]
    curves = Curves.of(steps, events)
    assert curves == Curves({0: 0.1, 10: 0.6}, {1: 0.5})
    path = plot_curves(tmp_path, succeeded, curves)
    assert path is not None
    assert path.read_bytes().startswith(b"\x89PNG")


def test_nothing_is_plotted_of_nothing(succeeded: Job, tmp_path: Path) -> None:
    assert plot_curves(tmp_path, succeeded, Curves({}, {})) is None


def test_several_samples_a_problem_add_pass_and_majority_to_the_table(succeeded: Job) -> None:
    assert succeeded.heldout is not None
    accuracy = succeeded.heldout.model_dump()
    change = accuracy | {"before": 0.5, "after": 0.625}
    several = HeldoutResult(**accuracy | {"samples": 4, "pass_at_n": change, "data_sets": {"amc": change}})
    sink = io.StringIO()
    print_result(Console(file=sink, width=100), succeeded.model_copy(update={"heldout": several}), 1.0)
    printed = sink.getvalue()
    assert [name in printed for name in ("avg@4", "pass@4", "maj@4", "amc", "0.625")] == [True, True, False, True, True]
