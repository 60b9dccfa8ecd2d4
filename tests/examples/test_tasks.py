"""The generated tasks: right answers, nothing shared between training and held-out rows, the same rows every time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from examples.smollm2.tasks import TASKS, Row, Task, demonstrations, split, write_task
from potstill.cli.jobfile import load_job
from potstill.contracts.context import DemonstrationsContext
from potstill.contracts.job import DataSpec
from potstill.data import load_problems

JOBS = {"largest": "demo", "sums": "sums", "words": "words"}
FOLDER = Path(__file__).parents[2] / "examples" / "smollm2"
LONGEST_RESPONSE = 24  # characters; digits are one token each, so this bounds the tokens as well


@pytest.fixture(params=list(TASKS.values()), ids=list(TASKS))
def task(request: pytest.FixtureRequest) -> Task:
    found: Task = request.param
    return found


@pytest.fixture
def rows(task: Task) -> tuple[list[Row], list[Row]]:
    return split(task, num_train=300, num_heldout=100, seed=0)


def expected_answer(task: Task, prompt: str) -> int:
    """Solve the prompt from its text alone."""
    numbers = [int(number) for number in re.findall(r"\d+", prompt)]
    if task.name == "largest":
        assert len(set(numbers)) == 4
        return max(numbers)
    a, b = numbers
    if "boxes" in prompt:
        return a * b
    return a - b if "away" in prompt else a + b


def test_every_answer_is_right_and_ends_the_solution(task: Task, rows: tuple[list[Row], list[Row]]) -> None:
    for row in [*rows[0], *rows[1], *demonstrations(task)]:
        assert row.answer == str(expected_answer(task, row.prompt))
        assert re.findall(r"\d+", row.solution)[-1] == row.answer
        assert len(row.solution) <= LONGEST_RESPONSE + 2


def test_no_held_out_row_asks_what_a_training_row_or_a_demonstration_asks(
    task: Task, rows: tuple[list[Row], list[Row]]
) -> None:
    train, heldout = ({row.asks for row in part} for part in rows)
    shown = {row.asks for row in demonstrations(task)}
    assert not train & heldout
    assert not shown & (train | heldout)
    assert len({row.prompt for part in rows for row in part}) == 400


def test_asking_in_another_order_is_asking_the_same() -> None:
    for name in ("largest", "sums"):
        for row in split(TASKS[name], num_train=200, num_heldout=0, seed=0)[0]:
            numbers = tuple(sorted(int(number) for number in re.findall(r"\d+", row.prompt)))
            assert row.asks == numbers


def test_word_problems_of_every_kind_are_shown_and_asked() -> None:
    words = TASKS["words"]
    train, heldout = split(words, num_train=300, num_heldout=100, seed=0)
    for part in (train, heldout, demonstrations(words)):
        assert {row.asks[0] for row in part} == {"+", "-", "×"}


def test_the_seed_decides_the_rows(task: Task, rows: tuple[list[Row], list[Row]]) -> None:
    assert split(task, num_train=300, num_heldout=100, seed=0) == rows
    other_train, other_heldout = split(task, num_train=300, num_heldout=100, seed=1)
    assert other_train != rows[0]
    assert other_heldout != rows[1]


def test_held_out_rows_stay_when_more_training_rows_are_asked_for(
    task: Task, rows: tuple[list[Row], list[Row]]
) -> None:
    train, heldout = split(task, num_train=350, num_heldout=100, seed=0)
    assert heldout == rows[1]
    assert train[:300] == rows[0]


def test_written_files_are_read_as_problems(task: Task, rows: tuple[list[Row], list[Row]], tmp_path: Path) -> None:
    folder = write_task(task, tmp_path, num_train=300, num_heldout=100, seed=0)
    for name, written in zip(("train", "heldout"), rows, strict=True):
        problems = load_problems(folder / f"{name}.jsonl", DataSpec(train="unused"))
        assert [(p.prompt[0].content, p.reference, p.solution) for p in problems] == [
            (row.prompt, row.answer, row.solution) for row in written
        ]
        assert json.loads((folder / f"{name}.jsonl").read_text().splitlines()[0]).keys() == {
            "prompt",
            "answer",
            "solution",
        }


def test_the_job_shows_its_teacher_the_demonstrations_as_its_problems_are_shown(task: Task) -> None:
    spec = load_job(FOLDER / f"{JOBS[task.name]}.yaml").spec
    (teacher,) = spec.teachers.values()
    context = teacher.context
    assert isinstance(context, DemonstrationsContext)
    shown = [(each.prompt, each.response) for each in context.demonstrations]
    rendered = [
        context.solution_template.replace("{solution}", row.solution).replace("{prompt}", row.prompt)
        for row in demonstrations(task)
    ]
    assert shown == list(zip(rendered, (row.solution for row in demonstrations(task)), strict=True))
    assert teacher.model == spec.student.model
