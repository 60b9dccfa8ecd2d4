"""The small pair: a teacher clearly better than its student, the same every time, made once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.small_pair.problems import problems, tokenizer
from examples.small_pair.train import build_pair
from potstill.cli.jobfile import load_job
from potstill.contracts.job import DataSpec
from potstill.data import load_problems

SMALL_STEPS = 250


def test_held_out_problems_are_not_trained_on_and_every_answer_is_right() -> None:
    train, heldout = problems(seed=0)
    assert not {prompt for prompt, _ in train} & {prompt for prompt, _ in heldout}
    for prompt, answer in [*train, *heldout]:
        assert sum(map(int, prompt.removesuffix("=").split("+"))) == int(answer)


def test_the_seed_decides_the_split() -> None:
    assert problems(seed=0) == problems(seed=0)
    assert problems(seed=0)[1] != problems(seed=1)[1]


def test_text_becomes_one_token_a_character_and_comes_back() -> None:
    reader = tokenizer()
    ids = reader("1+2+3+9=")["input_ids"]
    assert len(ids) == 8
    assert reader.decode(ids) == "1+2+3+9="


def test_the_job_is_valid_and_teaches_with_the_pair() -> None:
    spec = load_job(Path(__file__).parents[2] / "examples" / "small_pair" / "pair.yaml").spec
    (teacher,) = spec.teachers.values()
    assert spec.student.model.endswith("small-pair/student")
    assert teacher.model.endswith("small-pair/teacher")


@pytest.mark.slow
def test_the_teacher_beats_the_student_and_is_built_once(tmp_path: Path) -> None:
    folder = build_pair(tmp_path / "pair", steps=SMALL_STEPS, seed=0)
    facts = json.loads((folder / "pair.json").read_text())
    assert facts["teacher"]["interval"][0] > facts["student"]["interval"][1] + 0.2
    assert facts["teacher"]["accuracy"] >= 0.9
    assert load_problems(folder / "heldout.jsonl", DataSpec(train="unused"))
    made = (folder / "pair.json").stat().st_mtime_ns
    build_pair(folder, steps=SMALL_STEPS, seed=0)
    assert (folder / "pair.json").stat().st_mtime_ns == made
