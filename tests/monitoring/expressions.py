"""What rules and autoscalers ask of Prometheus."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests.ship.chart import LEAST, NAMESPACE, objects, of_kind

ROOT = Path(__file__).parents[2]
RULES: list[dict[str, Any]] = [
    rule
    for path in sorted((ROOT / "deploy" / "prometheus").glob("*.rules.yml"))
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
SELECTOR = re.compile(r"\b(potstill[_:][\w:]+|up)\b(?:\{([^}]*)\})?")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")


def selectors(expr: str) -> list[str]:
    """The metrics that an expression reads, each with the labels that it matches on, whatever their values."""
    found = []
    for metric, matchers in SELECTOR.findall(expr):
        labels = ", ".join(f'{label}!=""' for label in MATCHER.findall(matchers))
        found.append(f"{metric}{{{labels}}}")
    return found


def autoscaler_expressions() -> list[str]:
    """What the chart's autoscalers ask for, as PromQL; KEDA's own question to the queue server is none."""
    found = []
    for mode in ("hpa", "keda"):
        scaling = {"rollout": {"mode": mode}, "verifier": {"mode": mode}, "prometheusUrl": "http://prometheus:9090"}
        documents = objects(LEAST | {"autoscaling": scaling})
        for scaler in of_kind(documents, "HorizontalPodAutoscaler"):
            found += [_of_metric(metric) for metric in scaler["spec"]["metrics"]]
        for scaler in of_kind(documents, "ScaledObject"):
            triggers = scaler["spec"]["triggers"]
            found += [one["metadata"]["query"] for one in triggers if one["type"] == "prometheus"]
    return found


def _of_metric(metric: dict[str, Any]) -> str:
    if metric["type"] == "External":
        asked = metric["external"]["metric"]
        matchers = asked["selector"]["matchLabels"]
    else:
        asked, matchers = metric["pods"]["metric"], {"namespace": NAMESPACE}
    conditions = ", ".join(f'{label}="{value}"' for label, value in matchers.items())
    return f"{asked['name']}{{{conditions}}}"
