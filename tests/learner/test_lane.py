"""A lane from claim to end, against a real queue server, killed and disturbed in every way that is promised for."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from learner.checkpoint import find_damage, read_manifest
from potstill.broker import keys
from potstill.contracts.job import JobSpec
from potstill.contracts.state import JobState
from potstill.contracts.ticket import Phase
from tests.broker.conftest import SERVERS, QueueServer
from tests.learner.lane_harness import TinyRollout, Workplace, exit_of_learner, learner, probe, tiny_job

JOB = "job_tiny"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[QueueServer]:
    folder = tmp_path / "valkey"
    folder.mkdir()
    running = QueueServer(str(SERVERS["valkey"]), folder)
    yield running
    running.kill()


@pytest.fixture
def workplace(server: QueueServer, student_folder: Path, teacher_folder: Path) -> Iterator[Workplace]:
    with Workplace(server.url, TinyRollout(student_folder, teacher_folder)) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, student_folder: Path, teacher_folder: Path
) -> Iterator[tuple[Path, Workplace]]:
    """The job's folder after a run that nothing happened to, and the workplace it ran at."""
    folder = tmp_path_factory.mktemp("undisturbed")
    running = QueueServer(str(SERVERS["valkey"]), folder)
    rollout = TinyRollout(student_folder, teacher_folder)
    with Workplace(running.url, rollout) as workplace, learner(running.url, folder / "artifacts"):
        workplace.submit(JOB, tiny_job(folder, student_folder, teacher_folder))
        record = workplace.wait_for_end(JOB)
        assert record.state is JobState.SUCCEEDED, record.error
        yield folder / "artifacts" / "jobs" / JOB, workplace
    running.kill()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def weights(job: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(job / "final" / "model.safetensors")
    return found


def assert_same_outcome(job: Path, reference: Path) -> None:
    """Equal weights bit for bit, every ticket applied once, every step reported once, equal evaluations."""
    ours, theirs = weights(job), weights(reference)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    ledger = lines(job / "ledger.jsonl")
    assert ledger == lines(reference / "ledger.jsonl")
    assert len({line["ticket"] for line in ledger}) == len(ledger) == 15
    assert [line["step"] for line in lines(job / "metrics.jsonl")] == [1, 2, 3, 4, 5]
    for step in (0, 2, 4, 5):
        name = f"eval/step-{step:06d}.json"
        assert (job / name).read_bytes() == (reference / name).read_bytes()


class TestAnUndisturbedJob:
    def test_moves_the_weights_and_leaves_a_model_that_loads(self, undisturbed: Any, student_folder: Path) -> None:
        job, _ = undisturbed
        trained = AutoModelForCausalLM.from_pretrained(job / "final").state_dict()
        initial = AutoModelForCausalLM.from_pretrained(student_folder).state_dict()
        assert any(not torch.equal(trained[name], initial[name]) for name in trained)
        manifest = read_manifest(job / "final")
        assert (manifest.job_id, manifest.step, manifest.adapter) == (JOB, 5, False)
        assert find_damage(job / "final") is None

    def test_samples_no_staler_than_asked_and_evaluates_exact_policies(self, undisturbed: Any) -> None:
        job, workplace = undisturbed
        assert [report["staleness_max"] for report in lines(job / "metrics.jsonl")] == [0, 1, 1, 1, 1]
        for ticket in workplace.rollout.fulfilled:
            expected = ticket.id.step if ticket.id.phase is Phase.EVAL else max(0, ticket.id.step - 2)
            assert ticket.policy.version == expected
        evaluation = json.loads((job / "eval/step-000004.json").read_text())
        assert evaluation["policy_versions"] == [4]

    def test_behaviour_and_student_agree_where_nothing_is_stale(self, undisturbed: Any) -> None:
        first = lines(undisturbed[0] / "metrics.jsonl")[0]
        assert first["importance_mean"] == pytest.approx(1.0, abs=1e-4)
        assert first["mismatch_kl"] < 1e-6

    def test_reports_the_gain_and_keeps_what_a_resume_needs(self, undisturbed: Any) -> None:
        job, workplace = undisturbed
        record = workplace.job(JOB)
        heldout = record.result["heldout"]
        assert heldout["n"] == 3
        assert heldout["gain"] == pytest.approx(heldout["after"] - heldout["before"])
        assert record.result["checkpoint"] == str(job / "final")
        assert record.step == 5
        assert sorted(path.name for path in (job / "checkpoints").iterdir()) == ["step-000004", "step-000005"]
        assert sorted(path.name for path in (job / "journal").iterdir()) == ["step-000005.msgpack"]

    def test_tells_the_same_numbers_everywhere(self, undisturbed: Any) -> None:
        job, workplace = undisturbed
        stored = workplace.store(lambda store, _: store.metrics(JOB, after=None, limit=100))
        written = lines(job / "metrics.jsonl")
        assert [numbers for _, numbers in stored] == written
        events = workplace.store(lambda store, _: store.events(JOB, after=None, limit=1000))
        assert [e.data["reverse_kl"] for e in events if e.type == "metrics"] == [w["reverse_kl"] for w in written]
        assert list((job / "tensorboard").glob("events.*"))
        samples = lines(job / "trajectories/step-000003.jsonl")
        assert len(samples) == 3
        assert samples[0]["prompt"].endswith("=")

    def test_leaves_nothing_in_the_queue(self, undisturbed: Any) -> None:
        _, workplace = undisturbed
        left = workplace.store(lambda _, broker: broker.redis.keys(keys.PREFIX + f"job:{JOB}:*"))
        assert sorted(left) == sorted(key.encode() for key in (keys.events(JOB), keys.metrics(JOB)))


@pytest.mark.slow
def test_training_brings_the_student_closer_to_its_teacher(
    workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    spec = tiny_job(tmp_path, student_folder, teacher_folder, steps=24, prompts_per_step=14, lr=1e-2)
    workplace.submit(JOB, spec)
    with learner(workplace.url, tmp_path / "artifacts"):
        assert workplace.wait_for_end(JOB).state is JobState.SUCCEEDED
    reverse_kl = [report["reverse_kl"] for report in lines(tmp_path / "artifacts/jobs" / JOB / "metrics.jsonl")]
    assert np.mean(reverse_kl[-4:]) < 0.7 * np.mean(reverse_kl[:4])


KILLS = [
    "learner.after_step@1",  # before there is any checkpoint
    "learner.before_step@2",
    "learner.mid_checkpoint@2",
    "learner.after_journal@3",
    "learner.before_ack@4",
    "learner.after_step@5",
]


@pytest.mark.slow
def test_a_learner_killed_at_every_failpoint_ends_with_the_same_weights(
    undisturbed: Any, workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    workplace.submit(JOB, tiny_job(tmp_path, student_folder, teacher_folder))
    artifacts = tmp_path / "artifacts"
    armed = {"POTSTILL_FAILPOINTS": ",".join(f"{place}={tmp_path / place}" for place in KILLS)}
    for place in KILLS:
        assert exit_of_learner(workplace.url, artifacts, **armed) == -signal.SIGKILL
        assert (tmp_path / place).exists()
    with learner(workplace.url, artifacts, **armed):
        assert workplace.wait_for_end(JOB).state is JobState.SUCCEEDED
    assert_same_outcome(artifacts / "jobs" / JOB, undisturbed[0])


@pytest.mark.slow
def test_a_lane_that_slept_through_its_lease_writes_nothing_more(
    undisturbed: Any, workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    artifacts, lease = tmp_path / "artifacts", {"POTSTILL_LEARNER_LEASE_SECONDS": "1"}
    workplace.submit(JOB, tiny_job(tmp_path, student_folder, teacher_folder))
    with learner(workplace.url, artifacts, name="sleeper", **lease) as sleeper:
        workplace.wait(JOB, lambda record: record.step >= 2)
        sleeper.send_signal(signal.SIGSTOP)
        with learner(workplace.url, artifacts, name="other", **lease):
            assert workplace.wait_for_end(JOB).state is JobState.SUCCEEDED
        sleeper.send_signal(signal.SIGCONT)
        assert_same_outcome(artifacts / "jobs" / JOB, undisturbed[0])
        left = wait_for_metric(sleeper, 'potstill_learner_jobs_total{outcome="lost"} 1.0')
        assert 'potstill_learner_jobs_total{outcome="failed"} 0.0' in left
    assert workplace.job(JOB).state is JobState.SUCCEEDED
    assert_same_outcome(artifacts / "jobs" / JOB, undisturbed[0])


@pytest.mark.slow
def test_a_job_paused_and_resumed_ends_with_the_same_weights(
    undisturbed: Any, workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    artifacts = tmp_path / "artifacts"
    workplace.submit(JOB, tiny_job(tmp_path, student_folder, teacher_folder))
    with learner(workplace.url, artifacts):
        workplace.wait(JOB, lambda record: record.step >= 1)
        workplace.holding.set()
        workplace.command(JOB, "pause")
        paused = workplace.wait(JOB, lambda record: record.state is JobState.PAUSED)
        assert not paused.state.is_terminal
        workplace.holding.clear()
        workplace.command(JOB, "resume")
        assert workplace.wait_for_end(JOB).state is JobState.SUCCEEDED
    assert_same_outcome(artifacts / "jobs" / JOB, undisturbed[0])


@pytest.mark.slow
def test_a_lane_asked_to_end_hands_its_job_to_another_at_once(
    undisturbed: Any, workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    artifacts = tmp_path / "artifacts"
    workplace.submit(JOB, tiny_job(tmp_path, student_folder, teacher_folder))
    long_lease = {"POTSTILL_LEARNER_LEASE_SECONDS": "600"}
    with learner(workplace.url, artifacts, name="one", **long_lease):
        workplace.wait(JOB, lambda record: record.step >= 2)
    assert workplace.job(JOB).state in (JobState.QUEUED, JobState.SUCCEEDED)
    with learner(workplace.url, artifacts, name="two", **long_lease):
        assert workplace.wait_for_end(JOB).state is JobState.SUCCEEDED
    assert_same_outcome(artifacts / "jobs" / JOB, undisturbed[0])


@pytest.mark.slow
@pytest.mark.parametrize("lease_seconds", ["600", "1"], ids=["lease outlives it", "lease is lost with it"])
def test_a_queue_server_that_comes_back_with_older_data_changes_nothing(
    lease_seconds: str,
    undisturbed: Any,
    workplace: Workplace,
    server: QueueServer,
    tmp_path: Path,
    student_folder: Path,
    teacher_folder: Path,
) -> None:
    artifacts, older = tmp_path / "artifacts", tmp_path / "older"
    workplace.submit(JOB, tiny_job(tmp_path, student_folder, teacher_folder))
    with learner(workplace.url, artifacts, POTSTILL_LEARNER_LEASE_SECONDS=lease_seconds):
        workplace.wait(JOB, lambda record: record.step >= 1)
        server.kill()
        shutil.copytree(server.folder, older)
        server.start()
        workplace.wait(JOB, lambda record: record.step >= 3)
        server.kill()
        shutil.rmtree(server.folder)
        older.rename(server.folder)
        server.start()
        assert workplace.wait_for_end(JOB).state is JobState.SUCCEEDED
    assert_same_outcome(artifacts / "jobs" / JOB, undisturbed[0])


def test_a_cancelled_job_stops_while_it_waits_and_leaves_no_tickets(
    workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    workplace.holding.set()
    workplace.submit(JOB, tiny_job(tmp_path, student_folder, teacher_folder))
    with learner(workplace.url, tmp_path / "artifacts"):
        workplace.wait(JOB, lambda record: record.state is JobState.RUNNING)
        workplace.command(JOB, "cancel")
        assert workplace.wait(JOB, lambda record: record.state.is_terminal, 15).state is JobState.CANCELLED
        assert workplace.store(lambda _, broker: broker.redis.exists(keys.ticket_steps(JOB))) == 0


def test_too_many_tombstones_fail_the_job_with_their_reasons(
    server: QueueServer, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    def refuse(ticket: Any) -> str | None:
        return "the teacher refused" if (ticket.id.step, ticket.id.phase) == (2, Phase.TRAIN) else None

    rollout = TinyRollout(student_folder, teacher_folder, refuse=refuse)
    with Workplace(server.url, rollout) as workplace, learner(server.url, tmp_path / "artifacts"):
        workplace.submit(JOB, tiny_job(tmp_path, student_folder, teacher_folder))
        record = workplace.wait_for_end(JOB)
    assert record.state is JobState.FAILED
    assert record.error is not None
    assert record.error["code"] == "too_many_tombstones"
    assert "the teacher refused (3 times)" in record.error["detail"]


def test_a_few_tombstones_are_counted_and_the_job_goes_on(
    server: QueueServer, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    def refuse(ticket: Any) -> str | None:
        return "too long" if ticket.id.slot == 0 and ticket.id.phase is Phase.TRAIN else None

    rollout = TinyRollout(student_folder, teacher_folder, refuse=refuse)
    spec = tiny_job(tmp_path, student_folder, teacher_folder, max_tombstone_share=0.5, preset="opdvr", steps=2)
    with Workplace(server.url, rollout) as workplace, learner(server.url, tmp_path / "artifacts"):
        workplace.submit(JOB, spec)
        assert workplace.wait_for_end(JOB).state is JobState.SUCCEEDED
    job = tmp_path / "artifacts" / "jobs" / JOB
    assert [report["tombstones"] for report in lines(job / "metrics.jsonl")] == [1, 1]
    assert [line["tombstone"] for line in lines(job / "ledger.jsonl") if "tombstone" in line] == ["too long"] * 2


@pytest.mark.slow
def test_an_adapter_job_is_killed_and_resumed_and_leaves_an_adapter(
    workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    spec = tiny_job(
        tmp_path,
        student_folder,
        teacher_folder,
        lora={"rank": 4, "alpha": 8},
        steps=3,
        max_staleness=0,
        checkpoint_every=2,
    )
    workplace.submit(JOB, spec)
    artifacts = tmp_path / "artifacts"
    killed = {"POTSTILL_FAILPOINTS": f"learner.after_step@3={tmp_path / 'marker'}"}
    assert exit_of_learner(workplace.url, artifacts, **killed) == -signal.SIGKILL
    with learner(workplace.url, artifacts):
        assert workplace.wait_for_end(JOB).state is JobState.SUCCEEDED
    job = artifacts / "jobs" / JOB
    assert [report["staleness_max"] for report in lines(job / "metrics.jsonl")] == [0, 0, 0]
    adapter = load_file(job / "final" / "adapter_model.safetensors")
    assert any(tensor.abs().max() > 0 for name, tensor in adapter.items() if "lora_B" in name)
    manifest = read_manifest(job / "final")
    assert manifest.adapter
    assert "peft" in manifest.note


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"student": {"model": "/nowhere/model"}}, "student_load_failed"),
        ({"data": {"train": "/nowhere/train.jsonl"}}, "invalid_data"),
        ({"tracking": ["wandb"]}, "tracker_not_installed"),
    ],
)
def test_what_cannot_be_done_fails_the_job_in_one_sentence(
    change: dict[str, Any], code: str, workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    if code == "tracker_not_installed":
        with pytest.raises(ImportError):
            import wandb  # noqa: F401
    spec = tiny_job(tmp_path, student_folder, teacher_folder)
    workplace.submit(JOB, type(spec).model_validate(spec.model_dump(by_alias=True) | change))
    with learner(workplace.url, tmp_path / "artifacts"):
        record = workplace.wait_for_end(JOB)
    assert record.state is JobState.FAILED
    assert record.error is not None
    assert record.error["code"] == code
    assert len(record.error["detail"].splitlines()) == 1


def test_probes_and_metrics_answer_beside_the_loop(
    workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    with learner(workplace.url, tmp_path / "artifacts") as process:
        workplace.submit(JOB, tiny_job(tmp_path, student_folder, teacher_folder, steps=2))
        workplace.wait_for_end(JOB)
        assert probe(process, "/livez").status_code == 200
        assert probe(process, "/readyz").status_code == 200
        exported = probe(process, "/metrics").text
        assert "potstill_learner_step 2.0" in exported
        assert 'potstill_learner_teacher_reverse_kl{teacher="maths"}' in exported


def test_two_teachers_at_another_temperature_are_told_apart_and_weights_are_one(
    workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    document = tiny_job(tmp_path, student_folder, teacher_folder, steps=2, max_staleness=0).model_dump(by_alias=True)
    train = Path(document["data"]["train"])
    routed = [row | {"teacher": ("maths", "code")[i % 2]} for i, row in enumerate(lines(train))]
    train.write_text("".join(json.dumps(row) + "\n" for row in routed))
    teacher = document["teachers"]["maths"] | {"temperature": 0.7}
    document |= {"teachers": {"maths": teacher, "code": teacher}, "objective": {"preset": "opdvr"}}
    document["sampling"]["temperature"] = 0.7
    workplace.submit(JOB, JobSpec.model_validate(document))
    with learner(workplace.url, tmp_path / "artifacts") as process:
        record = workplace.wait_for_end(JOB)
        assert record.state is JobState.SUCCEEDED, record.error
        exported = probe(process, "/metrics").text
    steps = lines(tmp_path / "artifacts/jobs" / JOB / "metrics.jsonl")
    trained = [ticket for ticket in workplace.rollout.fulfilled if ticket.id.phase is Phase.TRAIN]
    for step in steps:
        # Nothing lags, and both sides divide their logits by the temperature.
        assert step["importance_mean"] == pytest.approx(1.0, abs=1e-4)
        assert step["importance_max"] == pytest.approx(1.0, abs=1e-3)
        routes = {ticket.teacher for ticket in trained if ticket.id.step == step["step"]}
        told = {key.partition("/")[2] for key in step if "/" in key}
        assert told == routes
        for name in ("groups_all_right", "groups_all_wrong", "groups_mixed"):
            assert step[name] == sum(step[f"{name}/{teacher}"] for teacher in routes)
    assert {"maths", "code"} == {ticket.teacher for ticket in trained}
    for name in ("reverse_kl", "gate_zeroed_share", "correct_share", "groups_mixed"):
        for teacher in told:
            shown = f'potstill_learner_teacher_{name}{{teacher="{teacher}"}}'
            assert shown in exported


def wait_for_metric(process: Any, line: str) -> str:
    """The exported metrics, once they have this line."""
    for _ in range(100):
        exported = probe(process, "/metrics").text
        if line in exported:
            return exported
        time.sleep(0.1)
    raise AssertionError(f"{line} did not appear")
