"""What a run looks like while it goes on: one state, shown as plain lines or as a live panel."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from potstill.contracts.job import Event

PACE_STEPS = 8  # recent steps that the estimate of the remaining time rests on
MESSAGES_SHOWN = 4
SHOWN_SECONDS = 0.05
PHASE = "seconds_"  # how the numbers of a step name where its time went
LEVEL_STYLES = {"info": "dim", "warning": "yellow", "error": "red"}


@dataclass
class RunProgress:
    """What the events so far say. Numbers are None until there is one."""

    steps: int
    step: int = 0
    heldout: float | None = None
    reverse_kl: float | None = None
    tokens_per_second: float | None = None
    waiting_for: str = "a lane"
    seconds: dict[str, float] = field(default_factory=dict)  # what the last step spent them on
    messages: deque[Event] = field(default_factory=lambda: deque(maxlen=MESSAGES_SHOWN))
    _times: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=PACE_STEPS + 1))

    def take(self, event: Event) -> None:
        """Learn from one event."""
        data = event.data
        if (found := evaluation(event)) is not None:
            _, self.heldout = found
        if event.type == "metrics":
            self.step = int(data.get("step", self.step))
            self.reverse_kl = data.get("reverse_kl", self.reverse_kl)
            self.tokens_per_second = data.get("tokens_per_second", self.tokens_per_second)
            self.seconds = {name.removeprefix(PHASE): value for name, value in data.items() if name.startswith(PHASE)}
            self._times.append((self.step, event.created_at))
        elif event.type == "message":
            self.messages.append(event)
        self.waiting_for = _waiting_for(event, self)

    @property
    def seconds_left(self) -> float | None:
        """By the pace of recent steps; None until there were two."""
        if len(self._times) < 2:
            return None
        (first, began), (last, ended) = self._times[0], self._times[-1]
        if last <= first:
            return None
        return (self.steps - self.step) * (ended - began) / (last - first)

    def line(self) -> str:
        """All of it on one line."""
        parts = [f"step {self.step}/{self.steps}"]
        if self.heldout is not None:
            parts.append(f"held-out accuracy {self.heldout:.3f}")
        if self.reverse_kl is not None:
            parts.append(f"reverse KL {self.reverse_kl:.3f}")
        if self.tokens_per_second is not None:
            parts.append(f"{self.tokens_per_second:,.0f} tokens/s")
        if self.seconds_left is not None:
            parts.append(f"{format_seconds(self.seconds_left)} left")
        return "  ".join(parts)


def evaluation(event: Event) -> tuple[int, float] | None:
    """Step and accuracy, when the event tells the end of a held-out evaluation."""
    data = event.data
    if event.type != "message" or data.get("accuracy") is None or "step" not in data:
        return None
    return int(data["step"]), float(data["accuracy"])


def _longest_first(seconds: dict[str, float]) -> str:
    spent = sorted(seconds.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {format_seconds(value)}" for name, value in spent if value >= SHOWN_SECONDS)


def _waiting_for(event: Event, progress: RunProgress) -> str:
    status = event.data.get("status") if event.type == "status" else None
    if status is not None:
        return {"queued": "a lane", "paused": "someone to resume it"}.get(str(status), "nothing")
    if event.type == "metrics":
        return f"rollouts of step {progress.step + 1}" if progress.step < progress.steps else "the last evaluation"
    return progress.waiting_for


def format_seconds(seconds: float) -> str:
    """`7.0 s`, `42 s`, `5:03`, `1:02:09`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if whole < 60:
        return f"{whole} s"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class PlainDisplay:
    """A line for every event, for logs and pipes."""

    def __init__(self, console: Console, progress: RunProgress) -> None:
        self._console, self._progress = console, progress

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def take(self, event: Event) -> None:
        self._progress.take(event)
        shown = self._progress.line() if event.type == "metrics" else event.message
        prefix = "" if event.level == "info" else f"{event.level}: "
        self._console.print(f"{prefix}{shown}", highlight=False, markup=False, soft_wrap=True)


class LiveDisplay:
    """A panel that is redrawn in place, for a terminal."""

    def __init__(self, console: Console, progress: RunProgress, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._clock, self._begun = progress, clock, clock()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def take(self, event: Event) -> None:
        self._progress.take(event)
        if event.level != "info":
            self._live.console.print(Text(f"{event.level}: {event.message}", LEVEL_STYLES[event.level]))

    def _render(self) -> RenderableType:
        progress = self._progress
        table = Table.grid(padding=(0, 2))
        table.add_row("step", f"{progress.step} of {progress.steps}")
        table.add_row("held-out accuracy", _number(progress.heldout, ".3f"))
        table.add_row("reverse KL", _number(progress.reverse_kl, ".3f", " nats a token"))
        table.add_row("speed", _number(progress.tokens_per_second, ",.0f", " tokens/s"))
        left = progress.seconds_left
        elapsed = format_seconds(self._clock() - self._begun)
        table.add_row("time", elapsed if left is None else f"{elapsed}, about {format_seconds(left)} left")
        table.add_row("waiting for", progress.waiting_for)
        if progress.seconds:
            table.add_row("last step", _longest_first(progress.seconds))
        messages = [Text(event.message, LEVEL_STYLES[event.level]) for event in progress.messages]
        return Group(ProgressBar(total=progress.steps, completed=progress.step, width=60), table, *messages)


Display = PlainDisplay | LiveDisplay


def display_for(console: Console, progress: RunProgress) -> Display:
    """Live on a terminal, lines elsewhere."""
    return LiveDisplay(console, progress) if console.is_terminal else PlainDisplay(console, progress)


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"
