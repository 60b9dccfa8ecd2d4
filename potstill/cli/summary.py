"""What a run leaves: a table for the terminal, `summary.json`, and a plot where matplotlib is installed."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from potstill.cli.progress import evaluation, format_seconds
from potstill.contracts.job import Change, Event, HeldoutResult, Job, StepMetrics


@dataclass(frozen=True)
class Curves:
    """Numbers by step; a step that was replayed counts once, as it was last."""

    heldout: dict[int, float]
    reverse_kl: dict[int, float]

    @classmethod
    def of(cls, steps: Sequence[StepMetrics], events: Iterable[Event]) -> Curves:
        heldout = dict(found for event in events if (found := evaluation(event)) is not None)
        reverse_kl = {entry.step: entry.values["reverse_kl"] for entry in steps if "reverse_kl" in entry.values}
        return cls(heldout, reverse_kl)


def summary_document(job: Job, seconds: float, **more: Any) -> dict[str, Any]:
    """The content of `summary.json`; `seconds` is the whole job from its submission."""
    heldout = None
    if job.heldout is not None:
        heldout = job.heldout.model_dump(mode="json")
    return {
        "job_id": job.id,
        "name": job.spec.name,
        "seed": job.spec.seed,
        "status": job.status,
        "steps": job.progress.step,
        "seconds": round(seconds, 1),
        "heldout": heldout,
        "checkpoint": job.checkpoint,
        **more,
    }


def write_summary(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "summary.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def print_result(console: Console, job: Job, seconds: float) -> None:
    """How the job ended, what it gained, and where its model is."""
    console.print(f"\n{job.spec.name} {job.status} after {format_seconds(seconds)} ({job.id})", highlight=False)
    if job.error is not None:
        console.print(f"{job.error.get('code', 'error')}: {job.error.get('detail', '')}", style="red", markup=False)
    if job.heldout is not None:
        console.print(_accuracy_table(job.heldout))
    if job.checkpoint is not None:
        console.print(f"checkpoint: {job.checkpoint}", highlight=False, markup=False, soft_wrap=True)


def _accuracy_table(heldout: HeldoutResult) -> Table:
    """Before, after and gain of the accuracy; with several samples a problem also of pass@n and maj@n."""
    n = heldout.samples
    measures: dict[str, Change | None] = {"accuracy": heldout}
    if n > 1:
        measures = {f"avg@{n}": heldout, f"pass@{n}": heldout.pass_at_n, f"maj@{n}": heldout.maj_at_n}
    known = {name: change for name, change in measures.items() if change is not None}
    return change_table(f"held-out accuracy on {heldout.n} problems", {**known, **heldout.data_sets})


def change_table(title: str, changes: Mapping[str, Change]) -> Table:
    """Three rows a measure: before, after, and the paired gain."""
    table = Table(title=title, title_justify="left")
    (first, *others) = changes
    for heading in ("", first, "95% interval"):
        table.add_column(heading, justify="left" if not heading else "right")
    _add_change(table, changes[first])
    for name in others:
        table.add_section()
        table.add_row("", name, "", style="bold")
        _add_change(table, changes[name])
    return table


def _add_change(table: Table, change: Change) -> None:
    table.add_row("before", f"{change.before:.3f}", _interval(change.before_interval))
    table.add_row("after", f"{change.after:.3f}", _interval(change.after_interval))
    table.add_row("gain (paired)", f"{change.gain:+.3f}", _interval(change.interval, "+"), style="bold")


def _interval(interval: tuple[float, float], sign: str = "") -> str:
    low, high = interval
    return f"{low:{sign}.3f} to {high:{sign}.3f}"


def plot_curves(folder: Path, job: Job, curves: Curves) -> Path | None:
    """Write `plot.png`; None without matplotlib or without numbers."""
    if importlib.util.find_spec("matplotlib") is None or not (curves.heldout or curves.reverse_kl):
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    panels = [("held-out accuracy", curves.heldout, "o-"), ("reverse KL, nats a token", curves.reverse_kl, "-")]
    for axes, (title, values, style) in zip(figure.subplots(1, 2), panels, strict=True):
        axes.plot(list(values), list(values.values()), style, markersize=4)
        axes.set(title=title, xlabel="step")
        axes.set_ylim(bottom=min(0.0, *values.values()) if values else 0.0)
        axes.grid(alpha=0.3)
    figure.suptitle(job.spec.name)
    path = folder / "plot.png"
    figure.savefig(path, dpi=120)
    return path
