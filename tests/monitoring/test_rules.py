"""Rules hold what they say, and each alert leads to its runbook."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus"
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((RULES / "alerts.rules.yml").read_text())["groups"] for rule in group["rules"]
]


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        assert not os.environ.get("CI"), "CI has to install prometheus"
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    return found


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_an_alert_says_what_it_means_and_where_to_read_on(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("warning", "critical")
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["description"]
    page, anchor = alert["annotations"]["runbook_url"].split("#")
    headings = re.findall(r"^## (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in [heading.lower() for heading in headings]
    assert anchor == alert["alert"].lower()


def test_every_alert_fires_when_it_must_and_only_then(promtool: str) -> None:
    page = RULES / "tests" / "alerts.test.yml"
    expected = set(re.findall(r'alertname="(\w+)"\}\'', page.read_text()))
    assert expected == {alert["alert"] for alert in ALERTS}
    done = subprocess.run([promtool, "test", "rules", page.name], cwd=page.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
