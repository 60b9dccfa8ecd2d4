"""Rows with the hub's own columns become problems that the verifier takes."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from potstill.contracts.job import DataSpec
from potstill.contracts.problem import Problem
from potstill.data import DataError
from potstill.evaluation.suites import SUITES
from potstill.evaluation.suites.deepmath import is_held_out
from potstill.evaluation.suites.loading import load_data_file, load_suite


def load(folder: Path, name: str, *rows: dict[str, Any]) -> list[Problem]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_suite(f"{name}={path}").problems


MATHS = [
    ("aime24", {"id": 60, "problem": "P?", "solution": "S", "answer": "204", "url": "u", "year": "2024"}, "60", "204"),
    ("aime25", {"problem_idx": 1, "answer": 70, "problem": "P?", "problem_type": ["Algebra"]}, "1", "70"),
    ("hmmt25-feb", {"problem_idx": 2, "answer": "\\frac{1}{2}", "problem": "P?"}, "2", "\\frac{1}{2}"),
    ("hmmt25-nov", {"problem_idx": 3, "answer": "$3$", "problem": "P?"}, "3", "$3$"),
    ("amc23", {"id": 0, "question": "P?", "answer": "27.0", "url": "u"}, "0", "27.0"),
    ("amc", {"id": 5, "problem": "P?", "answer": 142.0, "url": "u"}, "5", "142"),
    (
        "math500",
        {"problem": "P?", "solution": "S", "answer": "(3, \\pi)", "unique_id": "test/1.json"},
        "test/1.json",
        "(3, \\pi)",
    ),
    ("minerva", {"question": "P?", "answer": "1.4"}, "000001", "1.4"),
    ("olympiadbench", {"id": 7, "question": "P?", "context": "", "final_answer": ["$2$", "$5$"]}, "7", "2, 5"),
    ("deepmath", {"question": "P?", "final_answer": "0", "difficulty": 4.5, "topic": "t"}, "000001", "0"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "row", "problem_id", "reference"), MATHS, ids=[name for name, *_ in MATHS])
def test_maths_rows_ask_for_a_boxed_answer(
    tmp_path: Path, name: str, row: dict[str, Any], problem_id: str, reference: str
) -> None:
    (problem,) = load(tmp_path, name, row)
    assert (problem.id, problem.kind, problem.reference, problem.data_source) == (problem_id, "math", reference, name)
    (message,) = problem.prompt
    assert message.content.startswith("P?\n")
    assert "\\boxed{}" in message.content
    published = SUITES[name].published
    assert {(one.by, one.n, one.temperature, one.top_p) for one in published} == {
        ("g-opd", 32, 1.0, 1.0),
        ("opdvr", 16, 0.7, 0.95),
    }


def test_the_context_of_an_olympiad_problem_is_asked_with_it(tmp_path: Path) -> None:
    row = {"id": 7, "question": "P?", "context": "Let x=1.", "final_answer": ["2"]}
    (problem,) = load(tmp_path, "olympiadbench", row)
    assert problem.prompt[0].content.startswith("Let x=1.\nP?")


def test_humaneval_is_checked_by_its_own_test_with_what_its_prompt_defines(tmp_path: Path) -> None:
    row = {
        "task_id": "HumanEval/0",
        "prompt": "def double(x):\n    '''Twice.'''\n",
        "canonical_solution": "    return 2 * x\n",
        "entry_point": "double",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n",
    }
    (problem,) = load(tmp_path, "humaneval+", row)
    assert (problem.kind, problem.function, problem.reference) == ("code", "double", None)
    assert problem.tests == ({"code": row["test"], "prompt": row["prompt"]},)
    assert "def double(x):" in problem.prompt[0].content
    assert "return 2 * x" not in problem.prompt[0].content


def test_an_mbpp_task_shows_one_assertion_so_that_the_function_has_a_name(tmp_path: Path) -> None:
    row = {
        "task_id": 2,
        "code": "def f(a): return a",
        "prompt": "Write a function.",
        "source_file": "s",
        "test_imports": [],
        "test_list": ["assert f(1) == 1", "assert f(2) == 2"],
        "test": "inputs = [[1]]\nresults = [1]\nfor i, r in zip(inputs, results):\n    assert f(*i) == r\n",
    }
    (problem,) = load(tmp_path, "mbpp+", row)
    assert problem.id == "mbpp/2"
    assert problem.tests == ({"code": row["test"]},)
    assert "assert f(1) == 1" in problem.prompt[0].content
    assert "f(2)" not in problem.prompt[0].content


def packed(tests: list[dict[str, str]]) -> str:
    """Private tests as the hub has them."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def contest(**changes: Any) -> dict[str, Any]:
    public = [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]
    return {
        "question_title": "t", "question_content": "Add one.", "platform": "atcoder", "question_id": "abc_a",
        "contest_id": "abc", "contest_date": "2024-01-01", "starter_code": "", "difficulty": "easy",
        "public_test_cases": json.dumps(public), "private_test_cases": packed(public), "metadata": "{}",
    } | changes  # fmt: skip


def test_a_contest_problem_on_stdin_has_public_and_private_tests(tmp_path: Path) -> None:
    (problem,) = load(tmp_path, "livecodebench", contest())
    assert problem.tests == ({"stdin": "1\n", "stdout": "2\n"},) * 2
    assert problem.function is None


def test_a_functional_contest_problem_shows_its_starter_code_and_calls_the_method(tmp_path: Path) -> None:
    public = json.dumps([{"input": '[1, 2]\n"a"', "output": "[[3]]", "testtype": "functional"}])
    starter = "class Solution:\n    def add(self, numbers: List[int], word: str) -> List[List[int]]:\n        "
    row = contest(
        public_test_cases=public, private_test_cases=packed([]), starter_code=starter, metadata='{"func_name": "add"}'
    )
    (problem,) = load(tmp_path, "livecodebench", row)
    assert problem.function == "add"
    assert problem.tests == ({"arguments": [[1, 2], "a"], "expected": [[3]]},)
    assert "def add(self, numbers: List[int], word: str)" in problem.prompt[0].content


def test_private_tests_are_read_without_running_the_pickle_they_come_in(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "went off",)

    bomb = base64.b64encode(zlib.compress(pickle.dumps(Bomb()))).decode()
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(contest(private_test_cases=bomb)) + "\n" + json.dumps(contest(question_id="b")) + "\n")
    loaded = load_suite(f"livecodebench={path}")
    assert [problem.id for problem in loaded.problems] == ["b"]
    ((reason, count),) = loaded.left_out.items()
    assert "does more than hold a text" in reason
    assert count == 1
    assert not (tmp_path / "went off").exists()


def test_a_file_may_have_our_columns_instead(tmp_path: Path) -> None:
    shared = {"prompt": [{"role": "user", "content": "?"}], "ability": "math", "reward_model": {"ground_truth": "7"}}
    plain, other = load(tmp_path, "aime24", {"prompt": "1+1?", "answer": 2}, shared)
    assert (plain.prompt[0].content, plain.reference, plain.data_source) == ("1+1?", "2", "aime24")
    assert other.reference == "7"


def test_what_cannot_be_loaded_says_in_one_line_what_to_give(tmp_path: Path) -> None:
    for named, says in [
        (f"aime24={tmp_path / 'none.jsonl'}", "does not exist"),
        ("aime25=hub:nonsense", "hub:owner/name"),
        ("aime77", "there is no suite 'aime77': there are aime24"),
    ]:
        with pytest.raises(DataError, match=says) as caught:
            load_suite(named)
        assert "\n" not in caught.value.message
    with pytest.raises(DataError, match=r"give --suite aime24=FILE \(.* of hub:HuggingFaceH4/aime_2024"):
        load(tmp_path, "aime24", {"text": "x"})


def test_about_one_question_in_two_hundred_is_held_out() -> None:
    held_out = [is_held_out({"question": str(number)}) for number in range(20_000)]
    assert 60 < sum(held_out) < 140
    assert is_held_out({"question": " 5"}) == is_held_out({"question": "5"})


def test_a_data_file_names_the_data_set_where_its_rows_do_not(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "a", "answer": "1"}\n{"prompt": "b", "answer": "1", "data_source": "sums"}\n')
    loaded = load_data_file(str(path), DataSpec(train=""))
    assert [problem.data_source for problem in loaded.problems] == ["mine", "sums"]


def test_generated_tasks_are_the_same_every_time_and_have_one_answer() -> None:
    pytest.importorskip("reasoning_gym", reason="pip install 'potstill[reasoning-gym]'")
    sums = load_suite("reasoning-gym/chain_sum").problems
    assert sums == load_suite("reasoning-gym/chain_sum").problems
    assert (len(sums), sums[0].kind, sums[0].data_source) == (200, "math", "reasoning-gym/chain_sum")
    assert load_suite("reasoning-gym/caesar_cipher").problems[0].kind == "exact"
    with pytest.raises(DataError, match="several answers"):
        load_suite("reasoning-gym/countdown")
    with pytest.raises(DataError, match="has no task 'nope'"):
        load_suite("reasoning-gym/nope")
