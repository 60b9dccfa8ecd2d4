from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks import figures, page
from benchmarks.figures import Figure, beside, median_interval, read
from benchmarks.quick import losses

ROOT = Path(__file__).parents[2]


def test_a_ratio_above_one_is_in_our_favour_whatever_the_unit() -> None:
    assert beside("speed", [20.0] * 3, [10.0] * 3, "peer", "tokens/s", "c").ratio == 2.0
    assert beside("time", [10.0] * 3, [20.0] * 3, "peer", "seconds", "c").ratio == 2.0
    assert beside("memory", [10.0] * 3, [20.0] * 3, "peer", "MiB", "c").ratio == 2.0


def test_a_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    """A round in which the whole machine was slow counts no more than another."""
    found = beside("speed", [20.0, 2.0, 30.0], [10.0, 1.0, 10.0], "peer", "tokens/s", "c")
    assert (found.ratio, found.rounds) == (2.0, 3)
    assert found.interval is not None
    assert 2.0 <= found.interval[0] <= found.interval[1] <= 3.0


def test_the_interval_of_a_median_covers_it_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    intervals = [median_interval(generator.normal(size=25)) for _ in range(100)]
    assert 88 <= sum(low <= 0 <= high for low, high in intervals) <= 100


def test_what_a_command_measured_before_is_replaced_and_the_rest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "FIGURES", tmp_path / "benchmarks.json")
    monkeypatch.setattr(page, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(page, "PLOT", tmp_path / "benchmarks.png")
    for command, value in (("python -m benchmarks.queue", 1.0), ("python -m benchmarks.scale", 2.0)):
        figures.publish([beside("f", [value], [1.0], "peer", "tokens/s", command)])
    figures.publish([beside("f", [5.0], [1.0], "peer", "tokens/s", "python -m benchmarks.queue")])
    assert [figure.ours for figure in read()] == [5.0, 2.0]
    text = (tmp_path / "benchmarks.md").read_text()
    assert "## Queue" in text
    assert "**5.00**" in text
    assert (tmp_path / "benchmarks.png").stat().st_size > 1000


def test_the_page_is_that_of_the_figures() -> None:
    listed = msgspec.json.decode((ROOT / "docs/benchmarks.json").read_bytes(), type=list[Figure])
    assert (ROOT / "docs/benchmarks.md").read_text() == page.page(listed), "run python -m benchmarks.page"


def test_a_quarter_may_be_lost_and_no_more() -> None:
    assert losses({"a": 0.76, "b": 9.0}, {"a": 1.0, "b": 1.0}) == []
    assert losses({"a": 0.74}, {"a": 1.0}) == ["a: 0.74, 1.00 before, a loss of 26%"]


def test_a_ratio_that_was_not_measured_is_told() -> None:
    assert losses({}, {"a": 1.5}) == ["a: not measured, 1.50 before"]
