from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from potstill.cli.progress import LiveDisplay, PlainDisplay, RunProgress, format_seconds
from potstill.contracts.job import Event


def step(number: int, at: float, **numbers: Any) -> Event:
    data = {"step": number, **numbers}
    return Event(id=f"{number}-0", created_at=at, type="metrics", message=f"step {number}", data=data)


def said(message: str, level: Any = "info", **data: Any) -> Event:
    return Event(id="0-1", created_at=0, level=level, message=message, data=data)


class TestRunProgress:
    def test_the_line_holds_what_is_known_and_nothing_else(self) -> None:
        progress = RunProgress(steps=10)
        assert progress.line() == "step 0/10"
        progress.take(said("held-out accuracy after step 0: 25.0%", step=0, accuracy=0.25))
        progress.take(step(1, 100.0, reverse_kl=0.5, tokens_per_second=1234.0))
        assert progress.line() == "step 1/10  held-out accuracy 0.250  reverse KL 0.500  1,234 tokens/s"

    def test_the_time_left_follows_the_pace_of_recent_steps(self) -> None:
        progress = RunProgress(steps=20)
        progress.take(step(1, 0.0))
        for number in range(2, 12):
            progress.take(step(number, 1000.0 + 2 * number))
        assert progress.seconds_left == pytest.approx(9 * 2)

    def test_a_resumed_job_that_repeats_steps_has_no_negative_time(self) -> None:
        progress = RunProgress(steps=20)
        for number, moment in ((5, 0.0), (6, 1.0), (4, 9.0)):
            progress.take(step(number, moment))
        assert progress.seconds_left is None

    def test_what_it_waits_for_follows_the_events(self) -> None:
        progress = RunProgress(steps=2)
        assert progress.waiting_for == "a lane"
        progress.take(step(1, 0.0))
        assert progress.waiting_for == "rollouts of step 2"
        progress.take(step(2, 1.0))
        assert progress.waiting_for == "the last evaluation"
        progress.take(Event(id="1-1", created_at=2, type="status", message="", data={"status": "paused"}))
        assert progress.waiting_for == "someone to resume it"


class TestDisplays:
    def test_without_a_terminal_every_event_is_one_line(self) -> None:
        sink = io.StringIO()
        display = PlainDisplay(Console(file=sink, width=20), RunProgress(steps=2))
        with display:
            display.take(said("a long message that does not fit the width [b]"))
            display.take(step(1, 0.0, reverse_kl=0.5))
            display.take(said("too slow", "warning"))
        assert sink.getvalue().splitlines() == [
            "a long message that does not fit the width [b]",
            "step 1/2  reverse KL 0.500",
            "warning: too slow",
        ]

    def test_a_terminal_sees_where_the_time_goes(self) -> None:
        sink = io.StringIO()
        console = Console(file=sink, force_terminal=True, width=100)
        display = LiveDisplay(console, RunProgress(steps=4))
        with display:
            display.take(step(1, 0.0, reverse_kl=0.5, seconds_waiting=12.5, seconds_forward=3.25, seconds_publish=0.0))
            console.print(display._render())
        shown = sink.getvalue()
        assert "1 of 4" in shown
        assert "0.500 nats a token" in shown
        assert "waiting 12 s, forward 3.2 s" in shown
        assert "rollouts of step 2" in shown


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.31, "0.3 s"), (59.4, "59 s"), (60, "1:00"), (303, "5:03"), (3729, "1:02:09")]
)
def test_times_read_as_people_write_them(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
