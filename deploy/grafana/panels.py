"""What a dashboard is made of, without Grafana's own vocabulary: the JSON and the pictures are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# `lines` over time, the same `stack`ed, and the newest values as `bars` or `number`s.
Kind = Literal["lines", "stack", "bars", "number"]

ON_LANE = 'lane=~"$lane", instance=~"$instance"'
ON_INSTANCE = 'instance=~"$instance"'
OF_JOB = 'and on (instance) potstill_learner_job_info{job_id=~"$job"}'


@dataclass(frozen=True)
class Query:
    """A PromQL expression and how its series are called; `{{label}}` is filled in."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    title: str
    about: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: Kind = "lines"
    log: bool = False


@dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    name: str
    title: str
    about: str
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for row in self.rows for panel in row.panels)


def step_quantity(name: str, legend: str) -> Query:
    """A number of the newest step of the chosen jobs."""
    return Query(f"potstill_learner_step_{name}{{{ON_LANE}}} {OF_JOB}", legend)


def rate(metric: str, by: str, where: str, legend: str) -> Query:
    """A counter's rate, summed by labels."""
    return Query(f"sum by ({by}) (rate({metric}{{{where}}}[$__rate_interval]))", legend)


def quantile(share: float, histogram: str, by: str, where: str, legend: str) -> Query:
    """A quantile of a histogram over the interval."""
    buckets = f"sum by ({by}, le) (rate({histogram}_bucket{{{where}}}[$__rate_interval]))".replace("(, ", "(")
    return Query(f"histogram_quantile({share}, {buckets})", legend)
