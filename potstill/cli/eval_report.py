"""What an evaluation leaves for people: a table, `summary.json`, and a plot where matplotlib is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from potstill.contracts.job import Change
from potstill.evaluation.comparison import compare_average, compare_majority, compare_passed
from potstill.evaluation.results import ProblemResult, by_data_source
from potstill.evaluation.scores import Estimate, Scores, macro_average, score_data_sets

MEAN = "mean of data sets"


def score_table(problems: Sequence[ProblemResult]) -> Table:
    """What each data set comes to, and the mean of their accuracies."""
    data_sets = score_data_sets(problems)
    table = Table(title="95% intervals over problems", title_justify="left")
    for heading in ("data set", "measure", "value", "95% interval", "problems"):
        table.add_column(heading, justify="left" if heading in ("data set", "measure") else "right")
    for scores in data_sets:
        _add_scores(table, scores)
    macro = macro_average(problems) if len(data_sets) > 1 else None
    if macro is not None:
        _add_estimate(table, MEAN, f"avg@{max(scores.n for scores in data_sets)}", macro, style="bold")
    return table


def _add_scores(table: Table, scores: Scores) -> None:
    n = scores.n
    measures = {f"avg@{n}": scores.average}
    if n > 1:
        measures |= {f"pass@{n}": scores.pass_at_n, f"maj@{n}": scores.majority}
    for index, (measure, estimate) in enumerate(measures.items()):
        if estimate is not None:
            _add_estimate(
                table, "" if index else scores.data_source, measure, estimate, style=None if index else "bold"
            )
    if scores.average is None:
        table.add_row(scores.data_source, f"avg@{n}", "-", "", "0", style="bold")
    if scores.mean_tokens is not None and scores.truncated_share is not None:
        table.add_row("", "tokens a response", f"{scores.mean_tokens:,.1f}")
        table.add_row("", "truncated", f"{scores.truncated_share:.1%}")
    if scores.unverified_samples:
        table.add_row("", "samples not verified", f"{scores.unverified_samples:,}", style="yellow")
    if scores.tombstones:
        table.add_row("", "problems without samples", f"{scores.tombstones:,}", style="yellow")
    table.add_section()


def _add_estimate(table: Table, name: str, measure: str, estimate: Estimate, style: str | None) -> None:
    low, high = estimate.interval
    table.add_row(
        name, measure, f"{estimate.value:.3f}", f"{low:.3f} to {high:.3f}", f"{estimate.problems:,}", style=style
    )


def score_document(problems: Sequence[ProblemResult]) -> dict[str, Any]:
    """The estimates of `summary.json`."""
    return {"data_sets": score_data_sets(problems), "mean_of_data_sets": macro_average(problems)}


def changes(before: Sequence[ProblemResult], after: Sequence[ProblemResult]) -> dict[str, Change]:
    """Every measure of every data set that both evaluations have, and of all together."""
    first, second = by_data_source(before), by_data_source(after)
    common = [name for name in first if name in second]
    found: dict[str, Change | None] = {}
    for name in common:
        n = min(
            max((len(problem.correct) for problem in problems), default=0) for problems in (first[name], second[name])
        )
        prefix = f"{name} " if len(common) > 1 else ""
        found[f"{prefix}{f'avg@{n}' if n > 1 else 'accuracy'}"] = compare_average(first[name], second[name])
        if n > 1:
            found[f"{prefix}pass@{n}"] = compare_passed(first[name], second[name], n)
            found[f"{prefix}maj@{n}"] = compare_majority(first[name], second[name])
    if len(common) > 1:
        found["all problems"] = compare_average(before, after)
    return {name: change for name, change in found.items() if change is not None}


def plot_scores(path: Path, title: str, problems: Sequence[ProblemResult]) -> Path | None:
    """Accuracy of each data set with its interval, and pass@k by k; None without matplotlib or without numbers."""
    known = [scores for scores in score_data_sets(problems) if scores.average is not None]
    if importlib.util.find_spec("matplotlib") is None or not known:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = [scores.data_source for scores in known]
    averages = [scores.average for scores in known if scores.average is not None]
    values = [estimate.value for estimate in averages]
    reach = [
        [max(0.0, estimate.value - estimate.interval[0]) for estimate in averages],
        [max(0.0, estimate.interval[1] - estimate.value) for estimate in averages],
    ]
    left.barh(names, values, xerr=reach, capsize=3, height=0.5)
    left.invert_yaxis()
    left.set(title="accuracy (avg@n), 95% intervals", xlim=(0, 1))
    for scores in known:
        ks = list(scores.passed)
        right.plot(ks, [scores.passed[k].value for k in ks], "o-", markersize=4, label=scores.data_source)
    right.set(title="pass@k", xlabel="k", ylim=(0, 1.02))
    right.legend(fontsize="small")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    return path
