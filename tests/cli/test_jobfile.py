from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from potstill.cli.jobfile import JobFileError, LocalSection, load_job
from potstill.cli.run import stack_spec

JOB = """
name: demo
student: {model: models/student}
teachers: {maths: {model: HuggingFaceTB/SmolLM2-135M-Instruct}}
data: {train: train.jsonl, heldout: data/heldout.jsonl}
training: {steps: 50, lr: 1e-5}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "jobs" / "demo.yaml"
    path.parent.mkdir()
    path.write_text(JOB)
    return path


class TestPaths:
    def test_beside_the_file_comes_before_the_working_folder(
        self, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for folder in (tmp_path, job.parent):
            (folder / "train.jsonl").touch()
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "heldout.jsonl").touch()
        data = load_job(job).spec.data
        assert data.train == str(job.parent / "train.jsonl")
        assert data.heldout == str(tmp_path / "data" / "heldout.jsonl")

    def test_a_model_folder_becomes_absolute_and_a_hub_id_stays(self, job: Path) -> None:
        (job.parent / "models" / "student").mkdir(parents=True)
        spec = load_job(job).spec
        assert spec.student.model == str(job.parent / "models" / "student")
        assert spec.teachers["maths"].model == "HuggingFaceTB/SmolLM2-135M-Instruct"

    def test_a_file_that_is_nowhere_is_named_beside_the_job(self, job: Path) -> None:
        assert load_job(job).spec.data.train == str(job.parent / "train.jsonl")


class TestOverrides:
    def test_values_are_set_at_any_depth_with_their_types(self, job: Path) -> None:
        file = load_job(
            job, ["training.steps=3", "training.lr=2e-4", "objective.preset=opdvr", "student.lora={rank: 4}"]
        )
        assert file.spec.training.steps == 3
        assert file.spec.training.lr == 2e-4
        assert file.spec.objective.preset == "opdvr"
        assert file.spec.student.lora is not None
        assert file.spec.student.lora.rank == 4

    def test_the_seed_option_wins(self, job: Path) -> None:
        assert load_job(job, ["seed=1"], seed=2).spec.seed == 2

    @pytest.mark.parametrize("override", ["training.steps", "=3", "training.steps.more=3", "a..b=1"])
    def test_one_that_cannot_be_applied_is_repeated(self, job: Path, override: str) -> None:
        with pytest.raises(JobFileError) as caught:
            load_job(job, [override])
        assert override in str(caught.value)


class TestLocalSection:
    def test_it_is_no_part_of_the_job(self, job: Path) -> None:
        job.write_text(JOB + "local: {engine: vllm, teacher_dtype: float32, threads: {learner: 3}}\n")
        file = load_job(job)
        assert (file.local.engine, file.local.teacher_dtype, file.local.threads.learner) == ("vllm", "float32", 3)
        assert "local" not in file.spec.model_dump()

    def test_without_one_the_defaults_hold(self, job: Path) -> None:
        assert load_job(job).local == LocalSection()

    def test_overrides_reach_it(self, job: Path) -> None:
        assert load_job(job, ["local.threads.student=2"]).local.threads.student == 2

    def test_it_says_how_many_samples_the_student_generates_at_once(self, job: Path, tmp_path: Path) -> None:
        assert stack_spec(load_job(job, ["local.student_slots=96"]), tmp_path).student_slots == 96
        assert stack_spec(load_job(job), tmp_path).student_slots is None

    @pytest.mark.parametrize("section", ["{egine: vllm}", "{threads: {verifier: 1}}", "{engine: jax}", "[]x"])
    def test_what_it_does_not_have_is_refused(self, job: Path, section: str) -> None:
        job.write_text(JOB + f"local: {section}\n")
        with pytest.raises(JobFileError, match="local"):
            load_job(job)

    def test_a_misspelt_key_gets_a_suggestion(self, job: Path) -> None:
        job.write_text(JOB + "local: {egine: vllm}\n")
        with pytest.raises(JobFileError, match="did you mean 'engine'"):
            load_job(job)


class TestErrors:
    def test_every_problem_is_told_in_one_line(self, job: Path) -> None:
        document = yaml.safe_load(JOB)
        del document["student"]
        document["training"]["stepz"] = 1
        job.write_text(yaml.safe_dump(document))
        with pytest.raises(JobFileError) as caught:
            load_job(job)
        message = str(caught.value)
        assert "\n" not in message
        assert "student: is required" in message
        assert "training.stepz: there is no such key: did you mean 'steps'?" in message

    @pytest.mark.parametrize("content", ["a: [", "- a list", "just text", ""])
    def test_what_is_not_a_job_is_named(self, job: Path, content: str) -> None:
        job.write_text(content)
        with pytest.raises(JobFileError, match=r"demo\.yaml is not"):
            load_job(job)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(JobFileError, match=r"none\.yaml cannot be read: No such file"):
            load_job(tmp_path / "none.yaml")
