"""What a crash leaves behind is never taken for what was finished."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from learner.checkpoint import MODEL, Checkpoints, JobFacts, find_damage, load_optimizer, read_manifest, write_final
from learner.errors import JobError
from learner.journal import Journal
from learner.ledger import StepLog, ledger_lines
from learner.model import Student, load_student
from learner.optimizer import StudentOptimizer
from learner.policy import Policies
from learner.sharding import weights as weights_of
from learner.storage import new_folder
from potstill.contracts import wire
from potstill.contracts.job import LoraSpec, StudentSpec, TrainingSpec
from tests.learner.groups import group, random_groups, sample

FACTS = JobFacts("job_a", "tiny", {"preset": "opd"}, adapter=False)
CPU = torch.device("cpu")


def optimizer_of(student: Student) -> StudentOptimizer:
    return StudentOptimizer(student.trainable(), TrainingSpec(lr=0.01))


def save(checkpoints: Checkpoints, step: int, student: Student, optimizer: StudentOptimizer) -> None:
    checkpoints.save(step, student, weights_of(student), optimizer.state())


def take_step(student: Student, optimizer: StudentOptimizer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in student.trainable():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step(seed)


class TestJournal:
    def test_groups_come_back_as_they_were(self, tmp_path: Path) -> None:
        groups = [*random_groups(1), group([], slot=9, tombstone="refused")]
        Journal(tmp_path).write(3, groups)
        assert wire.encode(tuple(Journal(tmp_path).read(3))) == wire.encode(tuple(groups))

    def test_a_half_written_segment_is_not_there(self, tmp_path: Path) -> None:
        Journal(tmp_path).write(1, random_groups(1))
        (tmp_path / ".tmp-step-000002.msgpack").write_bytes(b"\x91")
        journal = Journal(tmp_path)
        assert journal.steps() == [1]
        assert not journal.has(2)
        assert not list(tmp_path.glob(".tmp-*"))

    def test_segments_that_a_checkpoint_holds_are_removed(self, tmp_path: Path) -> None:
        journal = Journal(tmp_path)
        for step in (1, 2, 3):
            journal.write(step, [])
        journal.remove_through(2)
        assert journal.steps() == [3]

    def test_a_damaged_segment_is_a_job_error(self, tmp_path: Path) -> None:
        (tmp_path / "step-000001.msgpack").write_bytes(b"\xc1")
        with pytest.raises(JobError, match="step-000001"):
            Journal(tmp_path).read(1)


class TestLedger:
    def test_lines_say_what_was_applied_or_why_not(self) -> None:
        lines = ledger_lines(2, [group([sample([5], version=1), sample([5], version=0)]), group([], tombstone="gone")])
        assert lines[0] == {
            "ticket": "job_a/train/000001/00000",
            "step": 2,
            "policy_versions": [0, 1],
            "trajectories": 2,
        }
        assert lines[1]["tombstone"] == "gone"

    def test_it_is_cut_back_to_a_step_and_loses_a_line_cut_short(self, tmp_path: Path) -> None:
        log = StepLog(tmp_path / "ledger.jsonl")
        for step in (1, 2, 3):
            log.append([{"ticket": f"{step}/{slot}", "step": step} for slot in range(2)])
        with (tmp_path / "ledger.jsonl").open("ab") as file:
            file.write(b'{"ticket": "4/0", "st')
        assert len(log.lines()) == 6
        log.truncate_after(2)
        assert [line["ticket"] for line in log.lines()] == ["1/0", "1/1", "2/0", "2/1"]
        log.append([{"ticket": "3/0", "step": 3}])
        assert log.lines()[-1] == {"ticket": "3/0", "step": 3}


class TestCheckpoints:
    def test_training_goes_on_from_one_bit_for_bit(
        self, tmp_path: Path, student: Student, student_folder: Path
    ) -> None:
        optimizer = optimizer_of(student)
        take_step(student, optimizer, 1)
        checkpoints = Checkpoints(tmp_path, FACTS, keep=2)
        save(checkpoints, 1, student, optimizer)
        folder = checkpoints.path(1) / MODEL
        spec = StudentSpec(model=str(student_folder))
        resumed = load_student(spec, seed=9, device=CPU, checkpoint_folder=folder)
        restored = optimizer_of(resumed)
        load_optimizer(checkpoints.path(1), restored)
        for each, its in ((student, optimizer), (resumed, restored)):
            take_step(each, its, 2)
        for a, b in zip(student.trainable(), resumed.trainable(), strict=True):
            assert torch.equal(a, b)

    def test_adapters_resume_bit_for_bit(self, tmp_path: Path, student_folder: Path) -> None:
        spec = StudentSpec(model=str(student_folder), lora=LoraSpec(rank=4, alpha=8))
        student = load_student(spec, seed=0, device=CPU)
        optimizer = optimizer_of(student)
        take_step(student, optimizer, 1)
        checkpoints = Checkpoints(tmp_path, FACTS, keep=2)
        save(checkpoints, 1, student, optimizer)
        resumed = load_student(spec, seed=9, device=CPU, checkpoint_folder=checkpoints.path(1) / MODEL)
        assert [p.shape for p in resumed.trainable()] == [p.shape for p in student.trainable()]
        for a, b in zip(student.trainable(), resumed.trainable(), strict=True):
            assert torch.equal(a, b)

    def test_the_newest_ones_stay(self, tmp_path: Path, student: Student) -> None:
        checkpoints = Checkpoints(tmp_path, FACTS, keep=2)
        for step in (1, 2, 3):
            save(checkpoints, step, student, optimizer_of(student))
        assert checkpoints.steps() == [2, 3]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000003"]

    def test_without_a_manifest_it_does_not_count(self, tmp_path: Path, student: Student) -> None:
        checkpoints = Checkpoints(tmp_path, FACTS, keep=3)
        save(checkpoints, 1, student, optimizer_of(student))
        save(checkpoints, 2, student, optimizer_of(student))
        (checkpoints.path(2) / "manifest.json").unlink()
        (tmp_path / ".tmp-step-000003").mkdir()
        assert Checkpoints(tmp_path, FACTS, keep=3).newest_intact() == 1
        assert not (tmp_path / ".tmp-step-000003").exists()

    @pytest.mark.parametrize("harm", ["cut", "flip", "remove", "manifest"])
    def test_a_damaged_one_is_passed_over(self, tmp_path: Path, student: Student, harm: str) -> None:
        checkpoints = Checkpoints(tmp_path, FACTS, keep=3)
        save(checkpoints, 1, student, optimizer_of(student))
        save(checkpoints, 2, student, optimizer_of(student))
        target = checkpoints.path(2) / MODEL / "model.safetensors"
        data = bytearray(target.read_bytes())
        data[-1] ^= 1
        match harm:
            case "cut":
                target.write_bytes(data[:-1])
            case "flip":
                target.write_bytes(data)
            case "remove":
                target.unlink()
            case "manifest":
                (checkpoints.path(2) / "manifest.json").write_text("{")
        assert checkpoints.newest_intact() == 1

    def test_the_final_folder_loads_with_its_tokenizer(self, tmp_path: Path, student: Student) -> None:
        write_final(tmp_path / "final", student, weights_of(student), FACTS, 7)
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "final")
        ids = torch.tensor([AutoTokenizer.from_pretrained(tmp_path / "final")("1+1").input_ids])
        assert torch.equal(loaded(input_ids=ids).logits, student.model(input_ids=ids).logits)
        manifest = read_manifest(tmp_path / "final")
        assert (manifest.job_id, manifest.step, manifest.student) == ("job_a", 7, "tiny")
        assert {"model.safetensors", "config.json", "tokenizer.json"} <= {entry.path for entry in manifest.files}
        assert find_damage(tmp_path / "final") is None


class TestPolicies:
    def test_a_full_policy_is_one_file_with_hugging_face_names(self, tmp_path: Path, student: Student) -> None:
        policies = Policies(tmp_path, max_staleness=1)
        policies.publish(0, student, weights_of(student))
        folder = tmp_path / "000000"
        assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
        weights = load_file(folder / "model.safetensors")
        assert "lm_head.weight" not in weights, "the tied head is the embedding"
        assert torch.equal(weights["model.embed_tokens.weight"], student.causal.get_input_embeddings().weight)
        assert policies.reference(0).uri == folder.as_uri()
        loaded = AutoModelForCausalLM.from_pretrained(folder)
        ids = torch.tensor([[1, 2, 3]])
        assert torch.equal(loaded(input_ids=ids).logits, student.model(input_ids=ids).logits)

    def test_bfloat16_students_publish_bfloat16(self, tmp_path: Path, student_folder: Path) -> None:
        spec = StudentSpec(model=str(student_folder), dtype="bfloat16")
        student = load_student(spec, seed=0, device=CPU)
        Policies(tmp_path, 1).publish(0, student, weights_of(student))
        weights = load_file(tmp_path / "000000" / "model.safetensors")
        assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}

    def test_an_adapter_policy_is_a_peft_folder(self, tmp_path: Path, student_folder: Path) -> None:
        spec = StudentSpec(model=str(student_folder), lora=LoraSpec(rank=4, alpha=8))
        student = load_student(spec, seed=0, device=CPU)
        Policies(tmp_path, 1).publish(0, student, weights_of(student))
        names = {path.name for path in (tmp_path / "000000").iterdir()}
        assert {"adapter_config.json", "adapter_model.safetensors"} <= names
        assert "model.safetensors" not in names

    def test_versions_are_written_once_and_old_ones_go(self, tmp_path: Path, student: Student) -> None:
        policies = Policies(tmp_path, max_staleness=1)
        for version in range(6):
            policies.publish(version, student, weights_of(student))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["000002", "000003", "000004", "000005"]
        before = (tmp_path / "000005" / "model.safetensors").stat().st_mtime_ns
        policies.publish(5, student, weights_of(student))
        policies.publish(1, student, weights_of(student))
        assert policies.newest() == 5
        assert (tmp_path / "000005" / "model.safetensors").stat().st_mtime_ns == before
        assert not (tmp_path / "000001").exists()


def test_a_process_killed_while_it_fills_a_folder_leaves_no_folder(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, pathlib\n"
        "from learner.storage import new_folder\n"
        "with new_folder(pathlib.Path(sys.argv[1])) as folder:\n"
        "    (folder / 'a').write_text('x')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    target = tmp_path / "000001"
    ended = subprocess.run(
        [sys.executable, "-c", program, str(target)], cwd=Path.cwd(), env=dict(os.environ), check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert not target.exists()
    with new_folder(target) as folder:
        (folder / "b").write_text("y")
    assert [path.name for path in target.iterdir()] == ["b"]
