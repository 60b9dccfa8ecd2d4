"""Dashboards are those of the code, and ask for metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.grafana.build import DASHBOARDS, document
from deploy.grafana.panels import Dashboard
from tests.monitoring.expressions import RULES

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\bpotstill[_:][\w:]+")
SUFFIXES = ("_bucket", "_sum", "_count")


def known_names() -> set[str]:
    table = (ROOT / "docs" / "metrics.md").read_text()
    metrics = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    histograms = set(re.findall(r"^\| `(\w+)` \| histogram", table, re.MULTILINE))
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    return metrics | {name + suffix for name in histograms for suffix in SUFFIXES} | recorded


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.name)
def test_a_dashboard_is_that_of_the_code(board: Dashboard) -> None:
    path = ROOT / "deploy" / "grafana" / f"{board.name}.json"
    assert path.read_text() == document(board), "run python -m deploy.grafana.build"


def test_every_metric_that_is_asked_for_exists() -> None:
    asked = [query.expr for board in DASHBOARDS for panel in board.panels for query in panel.queries]
    asked += [rule["expr"] for rule in RULES]
    assert {name for expr in asked for name in NAME.findall(expr)} <= known_names()
