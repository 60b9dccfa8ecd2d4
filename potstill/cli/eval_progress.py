"""How far an evaluation is: a bar on a terminal, a line every while elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from potstill.cli.progress import format_seconds
from potstill.evaluation.results import ProblemResult

LINE_SECONDS = 5.0


class EvalProgress:
    """Counts problems as they are answered."""

    def __init__(self, console: Console, total: int, answered: int) -> None:
        self._console, self._total, self._answered = console, total, answered
        self._begun, self._first = time.monotonic(), answered
        self._told = 0.0
        self._correct, self._known, self._tokens = 0.0, 0, 0
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
        self._task = self._bar.add_task("evaluating", total=total, completed=answered)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def take(self, problem: ProblemResult) -> None:
        """One more is answered."""
        self._answered += 1
        self._tokens += sum(problem.tokens)
        if problem.accuracy is not None:
            self._correct, self._known = self._correct + problem.accuracy, self._known + 1
        now = time.monotonic()
        if self._console.is_terminal:
            self._bar.update(self._task, completed=self._answered, description=self._measures(now))
        elif now - self._told >= LINE_SECONDS or self._answered == self._total:
            self._told = now
            line = f"{self._answered}/{self._total} problems  {self._measures(now)}  {self._left(now)}"
            self._console.print(line.rstrip(), highlight=False)

    def _measures(self, now: float) -> str:
        accuracy = f"accuracy so far {self._correct / self._known:.3f}  " if self._known else ""
        return f"{accuracy}{self._tokens / max(now - self._begun, 1e-9):,.0f} tokens/s"

    def _left(self, now: float) -> str:
        done, left = self._answered - self._first, self._total - self._answered
        return f"about {format_seconds((now - self._begun) / done * left)} left" if left else ""
