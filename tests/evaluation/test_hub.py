"""Suites are loaded by the hub's own library over HTTP, from where and as they are published."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from potstill.evaluation.suites import SUITES
from potstill.evaluation.suites.deepmath import is_held_out
from tests.evaluation.hub_server import Files, hub
from tests.evaluation.test_suites import MATHS, contest

pytest.importorskip("datasets", reason="pip install 'potstill[hub]'")
SHOW = """
import json, sys
from potstill.data import DataError
from potstill.evaluation.suites.loading import load_suite
told = {}
for name in sys.argv[1:]:
    try:
        told[name] = len(load_suite(name).problems)
    except DataError as error:
        told[name] = error.message
print(json.dumps(told))
"""
HUMANEVAL = {"task_id": "HumanEval/0", "prompt": "def f(x):\n", "entry_point": "f", "test": "def check(c): pass\n"}
MBPP = {"task_id": 2, "prompt": "Write f.", "test_list": ["assert f(1) == 1"], "test": "assert f(1) == 1\n"}
ROWS: dict[str, dict[str, Any]] = {name: row for name, row, *_ in MATHS} | {
    "humaneval+": HUMANEVAL,
    "mbpp+": MBPP,
    "livecodebench": contest(),
}
DEEPMATH = [ROWS["deepmath"] | {"question": f"What is {number}?"} for number in range(200)]
HELD_OUT = sum(map(is_held_out, DEEPMATH))


def published(name: str) -> tuple[str, Files]:
    """A data set with a row of a suite, in the place where its split is published."""
    source = SUITES[name].hub
    text = "".join(json.dumps(row) + "\n" for row in (DEEPMATH if name == "deepmath" else [ROWS[name]]))
    if source.files:
        return source.dataset, {
            path: (json.dumps(ROWS[name] | {"question_id": path}) + "\n").encode() for path in source.files
        }
    path = f"data/{source.split}.jsonl"
    config = source.config or "default"
    configs = [f"- config_name: {config}\n  data_files:\n  - split: {source.split}\n    path: {path}"]
    configs += ["- config_name: another\n  data_files: elsewhere.jsonl"] if source.config else []
    card = "\n".join(["---", "configs:", *configs, "---", ""])
    return source.dataset, {"README.md": card.encode(), path: text.encode(), "elsewhere.jsonl": b'{"a": 1}\n'}


def ask(address: str, folder: Path, *names: str) -> Mapping[str, int | str]:
    environment = os.environ | {"HF_ENDPOINT": address, "HF_HOME": str(folder), "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment.pop("HF_HUB_OFFLINE", None)
    environment.pop("HF_DATASETS_OFFLINE", None)
    shown = subprocess.run(
        [sys.executable, "-c", SHOW, *names], env=environment, capture_output=True, text=True, timeout=240, check=True
    )
    told: dict[str, int | str] = json.loads(shown.stdout.splitlines()[-1])
    return told


@pytest.fixture
def address() -> Iterator[str]:
    with hub(dict(published(name) for name in SUITES)) as address:
        yield address


@pytest.mark.slow
def test_every_suite_is_loaded_by_its_name(address: str, tmp_path: Path) -> None:
    expected = {name: len(SUITES[name].hub.files) or 1 for name in SUITES} | {"deepmath": HELD_OUT}
    assert 0 < HELD_OUT < len(DEEPMATH)
    assert set(ROWS) == set(SUITES)
    assert ask(address, tmp_path, *SUITES) == expected


@pytest.mark.slow
def test_what_a_hub_does_not_have_says_which_file_to_give(address: str, tmp_path: Path) -> None:
    told = ask(address, tmp_path, "aime24=hub:HuggingFaceH4/aime_2024", "math500=hub:nobody/nothing:test")
    assert told["aime24=hub:HuggingFaceH4/aime_2024"] == 1
    refusal = str(told["math500=hub:nobody/nothing:test"])
    assert "hub:nobody/nothing:test cannot be read from the hub" in refusal
    assert "give --suite math500=FILE" in refusal
