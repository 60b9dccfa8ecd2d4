"""The documents agree with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    code = "import sys; sys.path.insert(0, 'docs'); import metrics_table; sys.stdout.write(metrics_table.table())"
    table = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert (ROOT / "docs" / "metrics.md").read_text() == table, "run python docs/metrics_table.py"


def test_the_table_of_settings_is_that_of_the_code_and_each_says_what_it_is_for() -> None:
    code = "import sys; sys.path.insert(0, 'docs'); import settings_table; sys.stdout.write(settings_table.table())"
    table = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert (ROOT / "docs" / "settings.md").read_text() == table, "run python docs/settings_table.py"
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `POTSTILL_")]
    assert len(rows) > 60
    assert [row[0] for row in rows if len(row) != 4 or not row[3].endswith(".")] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text()):
        if not target.startswith(("http:", "https:")):
            assert (document.parent / target).exists(), target


def test_every_promise_names_a_test_that_exists() -> None:
    rows = [line for line in (ROOT / "SPEC.md").read_text().splitlines() if line.startswith("| ")]
    promises = [line for line in rows if not line.startswith("| promise")]
    assert len(promises) > 20
    for line in promises:
        enforced_by = line.rstrip(" |").rsplit("|", 1)[1]
        named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", enforced_by)
        assert named or "pending" in enforced_by, f"neither a test nor pending: {line}"
        for path, function in named:
            assert (ROOT / path).exists(), path
            assert not function or f"def {function}(" in (ROOT / path).read_text(), f"{path}::{function}"
