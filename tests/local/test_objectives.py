"""Every objective as a job, through every process: what it asks for arrives, and the student moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from potstill.contracts.state import JobState
from potstill.local.stack import Stack, TeacherProcess
from tests.local.test_stack import spec_of, wait_for_end
from tests.tiny_model import write_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

OBJECTIVES: dict[str, dict[str, Any]] = {
    "opd": {"preset": "opd"},
    "exopd": {"preset": "exopd"},
    "opdvr": {"preset": "opdvr"},
    "grpd": {"preset": "grpd", "group_scale_offset": 0.5},
    "relative gate": {"gate": "relative", "normalization": "mean"},
    "opd+grpo": {"preset": "opd+grpo", "baseline": "mean", "clip_signal": 5.0},
    "student's candidates": {"preset": "topk-opd", "top_k": 4},
    "teacher's candidates": {"preset": "topk-opd", "top_k": 4, "candidates": "teacher", "divergence": "forward_kl"},
    "both sides' candidates": {"preset": "topk-opd", "top_k": 4, "candidates": "union", "divergence": "jsd"},
    "KL to the reference": {"reference_kl": "k3", "aggregation": "sequence_mean_token_sum", "entropy_weight": 0.01},
}
ASK_REFERENCE = ("exopd", "KL to the reference")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("objectives")
    write_tiny_model(folder / "student", seed=0)
    write_tiny_model(folder / "teacher", seed=1)
    rows = [{"prompt": f"{i}+1?", "answer": str(i + 1), "solution": str(i + 1)} for i in range(8)]
    artifacts = folder / "artifacts"
    artifacts.mkdir()
    (artifacts / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    registry = {
        "maths": TeacherProcess(str(folder / "teacher"), "float32"),
        "start": TeacherProcess(str(folder / "student"), "float32"),
    }
    with Stack(spec_of(folder, artifacts, teachers=registry)) as running:
        yield running


def run(stack: Stack, **changes: Any) -> list[dict[str, Any]]:
    """The metrics of each step of a job of two steps."""
    models = Path(stack.spec.student_model).parent
    job = {
        "name": "objective",
        "student": {"model": str(models / "student")},
        "teachers": {"maths": {"model": str(models / "teacher")}},
        "data": {"train": "train.jsonl"},
        "sampling": {"n": 3, "max_tokens": 6},
        "training": {"steps": 2, "prompts_per_step": 4, "lr": 1e-3},
        "eval": {"every": 0},
    }
    with stack.client() as client:
        ended = wait_for_end(client, client.submit(job | changes).id)
        assert ended.status is JobState.SUCCEEDED, ended.error
        return [step.values for step in client.metrics(ended.id)]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_job_with_the_objective_trains(stack: Stack, name: str) -> None:
    models = Path(stack.spec.student_model).parent
    teachers: dict[str, Any] = {"maths": {"model": str(models / "teacher")}}
    if name in ASK_REFERENCE:
        teachers["maths"]["reference"] = "start"
        teachers["start"] = {"model": str(models / "student")}
    steps = run(stack, objective=OBJECTIVES[name], teachers=teachers)
    assert len(steps) == 2
    for values in steps:
        # The tiny model is never right, and a group that is all wrong says nothing to the relative gate.
        assert (values["gradient_norm"] > 0) == (name != "relative gate")
        assert values["missing_teacher_tokens"] == values["missing_candidate_values"] == 0
        assert values["missing_reference_tokens"] == 0
        assert (values.get("reference_logprob") is not None) == (name in ASK_REFERENCE)
        assert (values.get("divergence") is not None) == ("candidates" in name)


def test_the_base_under_an_adapter_is_a_reference_without_a_process(stack: Stack) -> None:
    models = Path(stack.spec.student_model).parent
    student = {"model": str(models / "student"), "lora": {"rank": 4, "alpha": 8}}
    teachers = {"maths": {"model": str(models / "teacher"), "reference": "base", "lambda": 1.25}}
    first, second = run(stack, student=student, teachers=teachers, objective={"preset": "exopd"})
    assert first["reference_kl"] == pytest.approx(0.0, abs=1e-5), "the adapter starts as nothing"
    assert second["reference_kl"] != first["reference_kl"]
    assert second["missing_reference_tokens"] == 0
