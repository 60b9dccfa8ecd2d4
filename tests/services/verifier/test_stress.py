"""Two thousand items of every kind through two workers, one in ten hostile: what docs/results/stress.md tells."""

from __future__ import annotations

import pytest

from benchmarks import stress

MIB = 2**20


@pytest.fixture(scope="module")
def report() -> stress.Report:
    return stress.run(2000)


@pytest.mark.slow
def test_honest_items_get_the_verdicts_of_a_quiet_run(report: stress.Report) -> None:
    assert (report.items, report.hostile) == (2000, 200)
    assert report.quiet_wrong == []
    assert report.changed == []


@pytest.mark.slow
def test_no_hostile_item_scores_and_none_harms_a_worker(report: stress.Report) -> None:
    assert report.scored == []
    assert report.workers_ended == 0


@pytest.mark.slow
def test_no_process_no_file_and_no_open_file_is_left(report: stress.Report) -> None:
    assert (report.processes_left, report.files_left, report.open_files_grown) == (0, [], 0)


@pytest.mark.slow
def test_memory_does_not_grow(report: stress.Report) -> None:
    """A leak of a program's output, or of the fork server's copy of one, would be far above this."""
    assert report.service_bytes_per_thousand < 4 * MIB
    assert report.fork_server_bytes_per_thousand < MIB
    assert report.worker_bytes_per_thousand < 16 * MIB
