"""The figures of `docs/benchmarks.json`: two sides measured in turn in one run, with a median and an interval.

A ratio above 1 is in our favour, whatever the unit: speeds are ours / theirs, seconds and memory theirs / ours.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.machine import machine_facts

FIGURES = Path("docs/benchmarks.json")
SMALLER_IS_BETTER = ("seconds", "ms", "MiB", "bytes/token")
RESAMPLES = 10_000


class Figure(msgspec.Struct, frozen=True):
    """One line of the page. Without a peer the figure stands alone, or beside the `aim`."""

    name: str
    ours: float
    unit: str
    command: str
    machine: dict[str, str]
    peer: float | None = None
    peer_name: str | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None  # 95%, bootstrap over rounds; of the ratio where there is one
    rounds: int = 1
    aim: str | None = None
    note: str | None = None


def circumstances() -> dict[str, str]:
    """Facts of the machine, and its load average: how much else it had to do."""
    return machine_facts() | {"load": f"{os.getloadavg()[0]:.0f}"}


def alone(name: str, values: Sequence[float], unit: str, command: str, **facts: Any) -> Figure:
    """A figure with nothing beside it: the median of its rounds."""
    interval = median_interval(np.array(values)) if len(values) > 1 else None
    return Figure(
        name, float(np.median(values)), unit, command, circumstances(), interval=interval, rounds=len(values), **facts
    )


def beside(
    name: str, ours: Sequence[float], peer: Sequence[float], peer_name: str, unit: str, command: str, **facts: Any
) -> Figure:
    """A figure measured in the same rounds as a peer's: the median of the rounds' own ratios."""
    ours_R, peer_R = np.array(ours, float), np.array(peer, float)
    ratio_R = peer_R / ours_R if unit in SMALLER_IS_BETTER else ours_R / peer_R
    return Figure(
        name,
        float(np.median(ours_R)),
        unit,
        command,
        circumstances(),
        peer=float(np.median(peer_R)),
        peer_name=peer_name,
        ratio=float(np.median(ratio_R)),
        interval=median_interval(ratio_R) if len(ratio_R) > 1 else None,
        rounds=len(ratio_R),
        **facts,
    )


def median_interval(value_R: np.ndarray[Any, np.dtype[Any]]) -> tuple[float, float]:
    """95% bootstrap interval of the median over rounds."""
    drawn = np.random.default_rng(0).integers(0, len(value_R), (RESAMPLES, len(value_R)))
    low, high = np.percentile(np.median(value_R[drawn], axis=1), [2.5, 97.5])
    return float(low), float(high)


def read() -> list[Figure]:
    return msgspec.json.decode(FIGURES.read_bytes(), type=list[Figure]) if FIGURES.exists() else []


def publish(figures: Sequence[Figure]) -> None:
    """Replace what the same command measured before, and write the page again."""
    from benchmarks.page import write_page

    commands = {figure.command for figure in figures}
    kept = [figure for figure in read() if figure.command not in commands]
    document = msgspec.to_builtins(sorted([*kept, *figures], key=lambda figure: figure.command))
    FIGURES.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    for figure in figures:
        print(line(figure))
    write_page()


def line(figure: Figure) -> str:
    """For the terminal."""
    text = f"{figure.name}: {number(figure.ours)} {figure.unit}"
    if figure.ratio is not None and figure.peer is not None:
        text += f", {figure.peer_name} {number(figure.peer)}, ratio {figure.ratio:.2f}"
    if figure.interval is not None:
        text += " ({} to {})".format(*map(number, figure.interval))
    return text + (f", aim {figure.aim}" if figure.aim else "")


def number(value: float) -> str:
    """Three figures, as one would say it."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
