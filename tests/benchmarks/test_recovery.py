"""A job that lost work or did it twice is told, not timed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.recovery import PROMPTS, STEPS, check_ledger


def entries() -> list[dict[str, Any]]:
    return [
        {"ticket": f"job/train/{step}/{slot}", "step": step, "trajectories": 4}
        for step in range(1, STEPS + 1)
        for slot in range(PROMPTS)
    ]


def write(folder: Path, lines: list[dict[str, Any]]) -> Path:
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_whole_ledger_passes(tmp_path: Path) -> None:
    check_ledger(write(tmp_path, entries()))


def test_lost_doubled_and_given_up_work_is_told(tmp_path: Path) -> None:
    whole = entries()
    with pytest.raises(RuntimeError, match="tickets by step"):
        check_ledger(write(tmp_path, whole[:-1]))
    with pytest.raises(RuntimeError, match="tickets by step"):
        check_ledger(write(tmp_path, [*whole, whole[-1]]))
    with pytest.raises(RuntimeError, match="trained on twice"):
        check_ledger(write(tmp_path, [*whole[:-1], whole[-2]]))
    with pytest.raises(RuntimeError, match="given up"):
        check_ledger(write(tmp_path, [*whole[:-1], whole[-1] | {"tombstone": "refused"}]))
