"""Run a job under a real Prometheus and draw the panels' query results: `python -m deploy.grafana.draw`.

    python -m deploy.grafana.draw examples/small_pair/pair.yaml --out docs/images

Grafana draws the same expressions from the same JSON; this needs none. The queries' answers are kept beside the
artifacts, so that `--again` draws without a run.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deploy.grafana.build import DASHBOARDS
from deploy.grafana.panels import Dashboard, Panel
from deploy.prometheus.local import LocalPrometheus, Series, compose_scraping, filled_in, local_prometheus
from potstill.cli.jobfile import load_job
from potstill.cli.run import stack_spec
from potstill.local.stack import Stack

COLUMNS = 3
POINTS = 240
RATE_INTERVAL = "15s"
MAX_COLUMNS = 4  # of a legend
Answers = dict[str, list[Series]]  # expression to series


def run(job: Path, folder: Path) -> Answers:
    """Run the job to its end and ask every panel's question about that time."""
    file = load_job(job)
    spec = stack_spec(file, folder)
    spec = replace(spec, env={**spec.env, "POTSTILL_COUNT_SECONDS": "2"})
    with Stack(spec) as stack, local_prometheus(folder / "prometheus", compose_scraping(stack.urls)) as prometheus:
        begin = time.time()
        with stack.client() as client:
            submitted = client.submit(file.spec)
            for event in client.events(submitted.id):
                print(event.message, flush=True)
        time.sleep(3)
        return _ask_all(prometheus, begin, time.time())


def _ask_all(prometheus: LocalPrometheus, begin: float, end: float) -> Answers:
    step = max(1.0, (end - begin) / POINTS)
    answers: Answers = {}
    for panel in (panel for board in DASHBOARDS for panel in board.panels):
        for query in panel.queries:
            expr = filled_in(query.expr, RATE_INTERVAL)
            answers[query.expr] = prometheus.over_time(expr, begin, end, step)
    return answers


def draw(board: Dashboard, answers: Answers, path: Path) -> None:
    """One picture of a dashboard, row by row as Grafana lays it out."""
    heights = [math.ceil(len(row.panels) / COLUMNS) for row in board.rows]
    figure = Figure(figsize=(16, 2.9 * sum(heights) + 0.5), layout="constrained")
    figure.suptitle(board.title, fontsize=14)
    for part, row, lines in zip(
        figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0], board.rows, heights, strict=True
    ):
        part.suptitle(row.title, x=0.01, ha="left", fontsize=11, weight="bold")
        places = part.subplots(lines, COLUMNS, squeeze=False).flatten()
        for axes, panel in zip(places, row.panels, strict=False):
            _draw_panel(axes, panel, _named(panel, answers))
        for axes in places[len(row.panels) :]:
            axes.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=75)


def _named(panel: Panel, answers: Answers) -> list[tuple[str, Series]]:
    return [
        (re.sub(r"{{(\w+)}}", lambda match, s=series: s.labels.get(match[1], ""), query.legend).strip(), series)  # type: ignore[misc]
        for query in panel.queries
        for series in answers[query.expr]
    ]


def _draw_panel(axes: Axes, panel: Panel, lines: Sequence[tuple[str, Series]]) -> None:
    axes.set_title(panel.title, loc="left", fontsize=9)
    axes.tick_params(labelsize=7)
    known = [(name, series) for name, series in lines if series.is_known]
    if panel.kind in ("bars", "number"):
        # What it showed half-way: at the end nothing moves any more.
        middle = [(name, series.values[len(series.values) // 2]) for name, series in known]
        axes.barh([name for name, _ in middle], [value for _, value in middle], color="#4c78a8")
        for index, (_, value) in enumerate(middle):
            axes.text(value, index, f" {value:.3g}", va="center", fontsize=8)
        axes.margins(x=0.15)
        return
    axes.grid(alpha=0.3)
    if panel.kind == "stack":
        _stack(axes, known)
    else:
        for name, series in known:
            axes.plot(_minutes(series), series.values, label=name, linewidth=1.1)
    if panel.log:
        axes.set_yscale("log")
    axes.set_xlabel("minutes", fontsize=7, loc="right", labelpad=1)
    if len(known) > 1:
        # Below the panel, where Grafana has it and nothing is hidden.
        place = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.1), "borderaxespad": 0.0}
        axes.legend(fontsize=7, ncols=MAX_COLUMNS, frameon=False, handlelength=1.2, columnspacing=1.2, **place)


def _stack(axes: Axes, lines: Sequence[tuple[str, Series]]) -> None:
    times = sorted({moment for _, series in lines for moment in series.times})
    moving = [(name, series) for name, series in lines if any(value for value in series.values)]
    heights = []
    for _, series in moving:
        at = dict(zip(series.times, series.values, strict=True))
        heights.append([value if math.isfinite(value := at.get(moment, 0.0)) else 0.0 for moment in times])
    if moving:
        begun = times[0]
        minutes = [(moment - begun) / 60 for moment in times]
        axes.stackplot(minutes, *heights, labels=[name for name, _ in moving], alpha=0.75)


def _minutes(series: Series) -> list[float]:
    return [(moment - series.times[0]) / 60 for moment in series.times]


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a job and draw the dashboards.")
    parser.add_argument("job", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--folder", type=Path, default=Path("artifacts/dashboards"))
    parser.add_argument("--again", action="store_true", help="Draw what an earlier run answered.")
    chosen = parser.parse_args()
    kept = chosen.folder / "answers.json"
    if not chosen.again:
        answers = run(chosen.job, chosen.folder)
        kept.write_text(json.dumps({expr: [asdict(series) for series in found] for expr, found in answers.items()}))
    stored: dict[str, list[dict[str, Any]]] = json.loads(kept.read_text())
    answers = {expr: [Series(**entry) for entry in found] for expr, found in stored.items()}
    for board in DASHBOARDS:
        path = chosen.out / f"dashboard-{board.name}.png"
        draw(board, answers, path)
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
