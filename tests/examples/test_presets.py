"""Every example of a preset is a job that this version accepts."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from examples.small_pair.problems import problems, write_rows
from examples.smollm2.tasks import TASKS, write_task
from potstill.checks.rows import check_rows
from potstill.cli.jobfile import JobFile, load_job
from potstill.cli.run import stack_spec
from potstill.contracts.capabilities import Capabilities, EngineInfo, ModelInfo
from potstill.contracts.job import JobSpec
from potstill.contracts.objective import Preset
from potstill.data import load_problems
from potstill.local.stack import Stack
from services.gateway.asking import Answers
from services.gateway.capability_checks import check_capabilities

FOLDER = Path("examples/presets")
JOBS = sorted(FOLDER.glob("*.yaml"))
FEATURES = ("logprobs", "temperature", "top_k", "candidate_ids", "lora")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What the examples' own preparations write, by the folder they write it to."""
    pair = tmp_path_factory.mktemp("small-pair")
    train, heldout = problems(seed=0)
    write_rows(pair / "train.jsonl", train[:50])
    write_rows(pair / "heldout.jsonl", heldout[:10])
    largest = write_task(TASKS["largest"], tmp_path_factory.mktemp("largest"), num_train=50, num_heldout=10, seed=0)
    return {"small-pair": pair, "largest": largest}


def load(path: Path, data: dict[str, Path]) -> JobFile:
    """The job, with its data where the test has it."""
    spec = load_job(path).spec
    written = data.get(Path(spec.data.train).parent.name)
    return load_job(
        path, [f"data.train={written}/train.jsonl", f"data.heldout={written}/heldout.jsonl"] if written else []
    )


def model(name: str) -> ModelInfo:
    return ModelInfo(name, "main", 264, "sha256:aaaa", (2,), 768)


def answers(spec: JobSpec) -> Answers:
    """What the services of a local run say on the torch engine."""
    torch = EngineInfo("torch", "2")
    return Answers(
        Capabilities("student", "0", model(spec.student.model), torch, {"max_top_k": 64}, FEATURES),
        {
            name: Capabilities("teacher", "0", model(teacher.model), torch, {"max_top_k": 264}, FEATURES)
            for name, teacher in spec.teachers.items()
        },
        None,
    )


def test_there_is_one_of_every_preset() -> None:
    assert {load_job(path).spec.objective.preset for path in JOBS} == set(get_args(Preset))


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_nothing_speaks_against_it(path: Path, data: dict[str, Path]) -> None:
    spec = load(path, data).spec
    rows = load_problems(Path(spec.data.train), spec.data)
    for found in (check_rows(rows, spec), check_capabilities(spec, answers(spec))):
        assert (found.refusals, found.unanswered, found.warnings) == ([], [], [])
    assert spec.name == path.stem, "so that its artifacts are found by the file's name"


def test_the_reference_of_the_extrapolation_has_a_process_and_no_rows(data: dict[str, Path], tmp_path: Path) -> None:
    file = load(FOLDER / "exopd.yaml", data)
    assert file.spec.default_teacher == "sums"
    assert file.spec.reference_of("sums") == "start"
    assert "teacher-start" in Stack(stack_spec(file, tmp_path))._http_names()


def test_two_teachers_of_the_same_weights_share_a_process(data: dict[str, Path], tmp_path: Path) -> None:
    names = Stack(stack_spec(load(FOLDER / "two-teachers.yaml", data), tmp_path))._http_names()
    assert [name for name in names if name.startswith("teacher-")] == ["teacher-maths"]
