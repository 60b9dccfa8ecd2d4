"""docs/operators names only what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from potstill.contracts.job import JobSpec
from tests.ship.chart import CHART
from tests.ship.compose_file import ROOT
from tests.ship.settings_models import PREFIX, SETTINGS

PAGES = sorted((ROOT / "docs" / "operators").glob("*.md"))
OF_PEOPLE = {"POTSTILL_URL", "POTSTILL_TOKEN"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_settings_and_metrics_exist(page: Path) -> None:
    text = page.read_text()
    known = {PREFIX + field.upper() for settings in SETTINGS.values() for field in settings.model_fields} | OF_PEOPLE
    assert set(re.findall(r"\bPOTSTILL_[A-Z_]+", text)) <= known
    assert set(re.findall(r"`(potstill_\w+)`", text)) <= set(
        re.findall(r"`(potstill_\w+)`", (ROOT / "docs/metrics.md").read_text())
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_values_of_the_chart_exist(page: Path) -> None:
    for dotted in re.findall(r"(?:--set |`)([a-z]\w*(?:\.\w+)+)(?:=[^`\s]*)?", page.read_text()):
        is_file = dotted.endswith((".json", ".jsonl", ".sh", ".env"))
        assert is_file or _of_the_chart(dotted.split(".")) or _of_a_job(dotted.split(".")), dotted


def _of_the_chart(keys: list[str]) -> bool:
    defaults: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    value: Any = defaults | {"teachers": {"maths": defaults["teacher"] | {"model": ""}}}
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True


def _of_a_job(keys: list[str]) -> bool:
    field = JobSpec.model_fields.get(keys[0])
    return field is not None and len(keys) == 2 and keys[1] in getattr(field.annotation, "model_fields", {})


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in (*PAGES, CHART / "README.md"):
        assert set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)) <= targets
