"""The chart as Helm renders it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from helm_python import Chart

from tests.ship.compose_file import ROOT

CHART = ROOT / "k8s" / "potstill"
VALUES = Path(__file__).parent / "values"
CASES = sorted(path.stem for path in VALUES.glob("*.yaml"))
RELEASE, NAMESPACE = "demo", "distil"
LEAST = yaml.safe_load((VALUES / "one_lane_cpu.yaml").read_text())


@cache
def chart() -> Chart:
    return Chart.load(CHART)


def manifests(values: dict[str, Any], name: str = RELEASE) -> dict[str, str]:
    """Template name to text. Raises HelmValuesError or HelmRenderError."""
    chart().validate_schema(values)
    rendered = chart().render(values, name=name, namespace=NAMESPACE)
    return {path.removeprefix("potstill/templates/"): text for path, text in sorted(rendered.items())}


def objects(values: dict[str, Any], name: str = RELEASE) -> list[dict[str, Any]]:
    texts = [text for path, text in manifests(values, name).items() if path != "NOTES.txt"]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def case(name: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((VALUES / f"{name}.yaml").read_text())
    return values


def golden(name: str) -> str:
    """What a case renders to, in one text."""
    parts = [f"# {path}\n{_tidy(text)}" for path, text in manifests(case(name)).items() if text.strip()]
    return "\n".join(parts)


def _tidy(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.strip().splitlines() if line.strip())


def of_kind(found: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [one for one in found if one["kind"] in kinds]


def named(found: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (one,) = (one for one in found if one["kind"] == kind and one["metadata"]["name"] == name)
    return one


def pods(found: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, str], dict[str, Any]]]:
    """Name, labels and spec of every pod."""
    for one in found:
        if one["kind"] == "Pod":
            yield one["metadata"]["name"], one["metadata"]["labels"], one["spec"]
        elif one["kind"] in ("Deployment", "StatefulSet"):
            template = one["spec"]["template"]
            yield one["metadata"]["name"], template["metadata"]["labels"], template["spec"]


def environment(pod: dict[str, Any]) -> dict[str, str]:
    """Variables of the pod's container as a process would see them; what Kubernetes fills in is made up."""
    found: dict[str, str] = {}
    for variable in pod["containers"][0]["env"]:
        value = variable.get("value")
        if value is None:
            value = "f" * 64 if "secretKeyRef" in variable["valueFrom"] else "a-pod-0"
        for name, known in found.items():
            value = value.replace(f"$({name})", known)
        found[variable["name"]] = value
    return found
