from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from potstill.contracts.job import DataSpec
from potstill.contracts.problem import Message
from potstill.data import DataError, load_problems
from potstill.data.hub import HubSource, parse_hub_source

SPEC = DataSpec(train="train.jsonl")


def write(folder: Path, *rows: Any, name: str = "train.jsonl") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_plain_rows_are_read_with_the_columns_the_spec_names(tmp_path: Path) -> None:
    spec = DataSpec(train="t", prompt_column="question", reference_column="label", teacher_column="who")
    path = write(tmp_path, {"question": "1+1?", "label": 2, "who": "maths", "solution": "count", "id": "a"})
    (problem,) = load_problems(path, spec)
    assert problem.prompt == (Message("user", "1+1?"),)
    assert (problem.id, problem.reference, problem.teacher, problem.solution) == ("a", "2", "maths", "count")
    assert problem.kind == "math"


def test_a_prompt_may_be_a_list_of_messages(tmp_path: Path) -> None:
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
    (problem,) = load_problems(write(tmp_path, {"prompt": prompt, "answer": "2"}), SPEC)
    assert problem.prompt == (Message("system", "Be brief."), Message("user", "1+1?"))


def test_shared_columns_give_math_references_and_code_tests(tmp_path: Path) -> None:
    prompt = [{"role": "user", "content": "?"}]
    truth = {"inputs": ["1\n"], "outputs": ["2\n"]}
    called = {"inputs": [[1]], "outputs": [2], "fn_name": "inc"}
    rows = [
        {"data_source": "aime", "prompt": prompt, "ability": "math", "reward_model": {"ground_truth": "7"}},
        {"data_source": "x", "prompt": prompt, "ability": "code", "reward_model": {"ground_truth": json.dumps(truth)}},
        {"data_source": "x", "prompt": prompt, "ability": "code", "reward_model": {"ground_truth": called}},
    ]
    maths, stdin, function = load_problems(write(tmp_path, *rows), SPEC)
    assert (maths.kind, maths.reference, maths.data_source) == ("math", "7", "aime")
    assert (stdin.kind, stdin.reference, stdin.tests) == ("code", None, ({"stdin": "1\n", "stdout": "2\n"},))
    assert (function.function, function.tests) == ("inc", ({"arguments": [1], "expected": 2},))


@pytest.mark.parametrize(
    ("rows", "field", "says"),
    [
        ([{"prompt": "a", "answer": "1"}, {"text": "b", "answer": "1"}], "prompt", "row 2"),
        ([{"prompt": "a"}], "answer", "row 1"),
        ([{"prompt": [{"role": "user"}], "answer": "1"}], "prompt", "row 1"),
        ([{"prompt": [{"role": "robot", "content": "x"}], "answer": "1"}], "prompt", "robot"),
        ([{"prompt": "a", "answer": ["1"]}], "answer", "row 1"),
        ([{"prompt": "a", "answer": "1", "id": "x"}, {"prompt": "b", "answer": "1", "id": "x"}], "id", "twice"),
        ([[1, 2]], "file", "row 1"),
        ([], "file", "no rows"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_row(tmp_path: Path, rows: list[Any], field: str, says: str) -> None:
    with pytest.raises(DataError) as caught:
        load_problems(write(tmp_path, *rows), SPEC)
    assert caught.value.field == field
    assert says in caught.value.message


def test_a_missing_file_and_an_unknown_format_are_data_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_problems(tmp_path / "none.jsonl", SPEC)
    with pytest.raises(DataError, match="neither"):
        load_problems(write(tmp_path, name="train.csv"), SPEC)


def test_parquet_rows_are_read_as_jsonl_rows_are(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    row = {"data_source": "aime", "prompt": [{"role": "user", "content": "?"}], "ability": "math"}
    row |= {"reward_model": {"style": "rule", "ground_truth": "7"}}
    parquet.write_table(arrow.Table.from_pylist([row]), tmp_path / "train.parquet")
    assert load_problems(tmp_path / "train.parquet", SPEC) == load_problems(write(tmp_path, row), SPEC)


def test_shared_rows_may_keep_solution_and_teacher_in_extra_info(tmp_path: Path) -> None:
    row = {"prompt": "?", "reward_model": {"ground_truth": "7"}, "extra_info": {"solution": "3+4", "teacher": "maths"}}
    (problem,) = load_problems(write(tmp_path, row), SPEC)
    assert (problem.solution, problem.teacher) == ("3+4", "maths")


def test_rows_without_a_reference_are_read_where_no_verdict_is_needed(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "a"}, {"prompt": "b", "answer": "1"})
    first, second = load_problems(path, SPEC, verifiable=False)
    assert (first.is_verifiable, second.is_verifiable) == (False, True)


def test_a_hub_data_set_is_named_with_config_revision_and_split() -> None:
    assert parse_hub_source("hub:a/b") == HubSource("a/b", split="train")
    full = parse_hub_source("hub:a/b.c/main@v1.0:test")
    assert full == HubSource("a/b.c", "main", "v1.0", "test")
    assert parse_hub_source(str(full)) == full
    with pytest.raises(DataError, match="hub:owner/name"):
        parse_hub_source("hub:name-alone")


def test_rows_of_a_hub_data_set_are_read_by_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets", reason="pip install 'potstill[hub]'")
    write(tmp_path, {"prompt": "1+1?", "answer": "2"}, {"prompt": "2+2?", "answer": "4"}, name="owner/set/train.jsonl")
    monkeypatch.chdir(tmp_path)  # the library takes a folder of this name for the data set
    assert [problem.reference for problem in load_problems("hub:owner/set", SPEC)] == ["2", "4"]
    with pytest.raises(DataError, match="cannot be read from the hub"):
        load_problems("hub:owner/set:nosplit", SPEC)
