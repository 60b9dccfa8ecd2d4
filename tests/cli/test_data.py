"""`potstill data check` says what is wrong, row by row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from potstill.cli.main import app

JOB = """
name: j
student: {model: m}
teachers:
  maths: {model: m}
  words: {model: m}
data: {train: train.jsonl, heldout: heldout.jsonl}
objective: {preset: opd}
"""


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def check(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["data", "check", *map(str, arguments)], env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_a_sound_file_has_its_counts_and_lengths_and_exit_code_0(tmp_path: Path) -> None:
    rows = [{"prompt": "x" * length, "answer": "1", "data_source": "s"} for length in (1, 2, 3, 400)]
    code, printed = check(write(tmp_path / "a.jsonl", *rows))
    assert code == 0, printed
    assert "nothing is wrong" in printed
    assert "data sources: s 4" in printed
    assert "4 without a solution" in printed
    (lengths,) = [line for line in printed.splitlines() if "prompt" in line]
    assert "400" in lengths


def test_every_bad_row_is_told_by_its_number(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        {"prompt": "one", "answer": "1", "id": "x"},
        "not json",
        {"prompt": "two", "answer": "1", "id": "x"},
        {"prompt": " one ", "answer": "2"},
        {"prompt": "three"},
        {"question": "four", "answer": "1"},
        {"prompt": "five", "kind": "code", "function": "f", "tests": [{"arguments": [1], "expected": 10**30}]},
    )
    code, printed = check(path)
    assert code == 1
    told = {line.split(":")[0]: line for line in printed.splitlines() if line.startswith("row ")}
    assert set(told) == {"row 2", "row 3", "row 4", "row 5", "row 6", "row 7"}
    assert "is not a JSON object" in told["row 2"]
    assert "first in row 1" in told["row 3"]
    assert "the prompt is that of row 1" in told["row 4"]
    assert "neither a reference answer" in told["row 5"]
    assert "no 'prompt'" in told["row 6"]
    assert "more than 64 bits" in told["row 7"]
    assert "6 of 7 rows have something wrong" in printed


def test_a_job_says_what_its_rows_need_and_which_may_not_repeat(tmp_path: Path) -> None:
    write(tmp_path / "heldout.jsonl", {"prompt": "held out", "answer": "1"})
    path = write(
        tmp_path / "train.jsonl",
        {"prompt": "a", "teacher": "maths"},  # `opd` needs no reference
        {"prompt": "b", "teacher": "latin"},
        {"prompt": "c"},
        {"prompt": "held  out", "teacher": "words"},
    )
    (tmp_path / "job.yaml").write_text(JOB)
    code, printed = check(path, "--job", tmp_path / "job.yaml")
    assert code == 1
    told = [line for line in printed.splitlines() if line.startswith("row ")]
    assert told == [
        "row 2: the teacher 'latin' is none of maths, words",
        "row 3: there is no teacher ('teacher'), and there are several to choose from",
        "row 4: the prompt is one of the held-out problems",
    ]


def test_needs_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"prompt": "a", "solution": "s"}, {"prompt": "b"})
    assert check(path, "--need", "solution")[1].startswith("row 2: there is no solution ('solution')")


@pytest.mark.parametrize("name", ["none.jsonl", "empty.jsonl"])
def test_a_file_that_cannot_be_read_is_one_line_and_exit_code_1(tmp_path: Path, name: str) -> None:
    write(tmp_path / "empty.jsonl")
    code, printed = check(tmp_path / name)
    assert code == 1
    assert printed.startswith("potstill: ")
    assert len(printed.splitlines()) == 1
