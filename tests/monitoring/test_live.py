"""A job under a real Prometheus: every panel, rule and autoscaler has an answer from what the processes export."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.grafana.build import DASHBOARDS
from deploy.prometheus.local import LocalPrometheus, Series, compose_scraping, filled_in, local_prometheus
from potstill.contracts.state import JobState
from potstill.local.stack import Stack, StackSpec, TeacherProcess
from potstill.local.threads import Threads
from tests.monitoring.expressions import RULES, autoscaler_expressions, selectors
from tests.ship.chart import LEAST, NAMESPACE, named, objects
from tests.tiny_model import write_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RATE_INTERVAL = "10s"
PATIENCE_SECONDS = 60
SECONDS_AFTER = 3  # of scraping, once the job has ended
# A student with random weights is never right: the series is there, and says that it does not know.
UNKNOWN_HERE = ("potstill_learner_step_gate_zeroed_share_right",)
PANELS = [(board.name, panel) for board in DASHBOARDS for panel in board.panels]


@dataclass(frozen=True)
class Watched:
    """The time of a job, as one Prometheus saw it."""

    prometheus: LocalPrometheus
    begin: float
    end: float

    def over_time(self, expr: str) -> list[Series]:
        return self.prometheus.over_time(filled_in(expr, RATE_INTERVAL), self.begin, self.end, 0.5)


def bare_scraping(urls: dict[str, str]) -> dict[str, Any]:
    """A Prometheus of one's own that says no more than which service an address is."""
    static = [
        {"targets": [url.removeprefix("http://")], "labels": {"service": name.split("-")[0]}}
        for name, url in urls.items()
    ]
    return {"job_name": "potstill", "static_configs": static}


def chart_scraping(urls: dict[str, str]) -> dict[str, Any]:
    """The chart's PodMonitor, as the operator writes it into Prometheus."""
    monitor = named(objects(LEAST | {"monitoring": {"podMonitor": True}}), "PodMonitor", "demo-potstill")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    relabelings = [
        {"source_labels": rule["sourceLabels"], "target_label": rule["targetLabel"]} for rule in endpoint["relabelings"]
    ]
    static = []
    for name, url in urls.items():
        component = name.split("-")[0]
        labels = {"namespace": NAMESPACE, "__meta_kubernetes_pod_label_app_kubernetes_io_component": component}
        if component in ("student", "rollout", "learner"):
            labels["__meta_kubernetes_pod_label_potstill_lane"] = "default"
        static.append({"targets": [url.removeprefix("http://")], "labels": labels})
    return {
        "job_name": "potstill",
        "honor_labels": endpoint["honorLabels"],
        "static_configs": static,
        "relabel_configs": relabelings,
    }


SCRAPING = {"compose": compose_scraping, "chart": chart_scraping, "bare": bare_scraping}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Watched]]:
    """One job, on tiny models, under a Prometheus for each way to scrape it."""
    if shutil.which("prometheus") is None:
        assert not os.environ.get("CI"), "CI has to install prometheus"
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    folder = tmp_path_factory.mktemp("watched")
    with ExitStack() as running:
        stack = running.enter_context(Stack(_stack(folder)))
        servers = {
            name: running.enter_context(local_prometheus(folder / name, scraping(stack.urls)))
            for name, scraping in SCRAPING.items()
        }
        begin = time.time()
        for server in servers.values():
            _await_scrapes(server, len(stack.urls))
        with stack.client() as client:
            job = client.submit(_job(folder))
            for _ in client.events(job.id):
                pass
            ended = client.get(job.id)
        assert ended.status is JobState.SUCCEEDED, ended.error
        time.sleep(SECONDS_AFTER)
        end = time.time()
        yield {name: Watched(server, begin, end) for name, server in servers.items()}


def _await_scrapes(server: LocalPrometheus, processes: int) -> None:
    """Wait for the zeros of the counters: without them, what a short job counts would be no increase."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(series.values[-1] for series in server.instant("count(up == 1)")) < processes:
        assert time.monotonic() < deadline, "not every process is scraped"
        time.sleep(0.2)


def _stack(folder: Path) -> StackSpec:
    write_tiny_model(folder / "student", seed=0)
    write_tiny_model(folder / "teacher", seed=1)
    rows = [{"prompt": f"{i}+1?", "answer": str(i + 1), "teacher": "maths"} for i in range(16)]
    for name, given in (("train", rows), ("heldout", rows[:4])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    return StackSpec(
        artifacts=folder,
        student_model=str(folder / "student"),
        teachers={"maths": TeacherProcess(str(folder / "teacher"), "float32")},
        threads=Threads(1, 1, 1),
        env={"POTSTILL_COUNT_SECONDS": "1"},
    )


def _job(folder: Path) -> dict[str, Any]:
    return {
        "name": "watched",
        "student": {"model": str(folder / "student")},
        "teachers": {"maths": {"model": str(folder / "teacher")}},
        "data": {"train": "train.jsonl", "heldout": "heldout.jsonl"},
        "objective": {"preset": "opdvr"},
        "sampling": {"n": 2, "max_tokens": 8},
        "training": {"steps": 30, "prompts_per_step": 4, "lr": 1e-3},
        "eval": {"every": 10},
    }


@pytest.mark.parametrize("scraping", SCRAPING)
def test_every_expression_of_a_panel_has_an_answer_while_a_job_runs(watched: dict[str, Watched], scraping: str) -> None:
    unanswered = [
        f"{board} / {panel.title}: {query.expr}"
        for board, panel in PANELS
        for query in panel.queries
        if not _is_answered(watched[scraping], query.expr)
    ]
    assert unanswered == []


def _is_answered(watched: Watched, expr: str) -> bool:
    series = watched.over_time(expr)
    return bool(series) if expr.startswith(UNKNOWN_HERE) else any(one.is_known for one in series)


@pytest.mark.parametrize("scraping", SCRAPING)
def test_every_rule_reads_metrics_that_are_exported(watched: dict[str, Watched], scraping: str) -> None:
    expressions = [rule["expr"] for rule in RULES]
    missing = {
        selector for expr in expressions for selector in selectors(expr) if not watched[scraping].over_time(selector)
    }
    assert missing == set()


@pytest.mark.parametrize("scraping", SCRAPING)
def test_every_rule_is_evaluated_and_every_recording_has_values(watched: dict[str, Watched], scraping: str) -> None:
    rules = watched[scraping].prometheus.rules()
    assert len(rules) == len(RULES)
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
    recorded = [rule["record"] for rule in RULES if "record" in rule]
    assert [name for name in recorded if not any(s.is_known for s in watched[scraping].over_time(name))] == []


@pytest.mark.parametrize("scraping", SCRAPING)
def test_a_job_that_goes_well_fires_no_alert(watched: dict[str, Watched], scraping: str) -> None:
    fired = watched[scraping].over_time('ALERTS{alertstate="firing"}')
    assert [series.labels["alertname"] for series in fired] == []


def test_every_autoscaler_asks_for_a_metric_that_is_there(watched: dict[str, Watched]) -> None:
    expressions = autoscaler_expressions()
    assert len(expressions) == 3
    assert [expr for expr in expressions if not any(s.is_known for s in watched["chart"].over_time(expr))] == []
