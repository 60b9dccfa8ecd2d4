"""`potstill explain` says what is trained, for each teacher, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from potstill.checks.objective import check_objective
from potstill.cli.explain import explanation
from potstill.cli.main import app
from potstill.contracts.job import JobSpec


def job(objective: dict[str, Any], teachers: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    named = teachers or {"maths": {"model": "lab/teacher"}}
    return {"name": "j", "student": {"model": "lab/student"}, "teachers": named, "data": {"train": "t"}, **more} | {
        "objective": objective
    }


def lines(*arguments: Any, **more: Any) -> list[str]:
    return explanation(JobSpec.model_validate(job(*arguments, **more)))


def test_each_teacher_has_its_own_lambda_and_reference() -> None:
    found = lines(
        {"preset": "exopd", "gate": "correctness"},
        {
            "maths": {"model": "lab/m", "reference": "start"},
            "code": {"model": "lab/c", "lambda": 1.0, "reference": "start"},
            "start": {"model": "lab/s"},
        },
    )
    maths, code, start = (
        next(i for i, x in enumerate(found) if x.startswith(f"teacher {n}")) for n in ("maths", "code", "start")
    )
    assert any("(T - S') + 0.25 (T - R)" in line for line in found[maths:code])
    assert "    teacher start: R of every sampled token" in found[maths:code]
    assert "  d = T - S'" in found[code:start]
    assert not any("R of every" in line for line in found[code:start])
    assert "  d <- max(d, 0) where score > 0, else min(d, 0)" in found[code:start]
    assert "stated in the job: gate correctness" in found


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ({"preset": "grpd", "group_scale_offset": 0.5}, "  d <- d (|A| + 0.5)"),
        ({"preset": "opd+grpo", "baseline": "mean"}, "  advantage = d + 1 A - mean over the step"),
        ({"gate": "relative"}, "  d <- sign(A) relu(sign(A) d)"),
        ({"entropy_weight": 0.1}, "  loss -= 0.1 entropy(student)"),
        (
            {"aggregation": "sequence_mean_token_sum"},
            "  aggregate = mean over samples of the sum over their tokens / 64",
        ),
        (
            {"preset": "topk-opd", "candidates": "union"},
            "    teacher maths: T of every sampled token, and of the student's top tokens, and its own top 16",
        ),
    ],
)
def test_every_part_is_in_the_formula(objective: dict[str, Any], expected: str) -> None:
    assert expected in lines(objective)
    assert expected not in lines({})


def test_the_command_applies_overrides_and_warns(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        yaml.safe_dump(
            job(
                {"preset": "exopd"},
                student={"model": "lab/s", "lora": {}},
                teachers={"maths": {"model": "m", "reference": "base"}},
            )
        )
    )
    result = CliRunner().invoke(app, ["explain", str(path), "--set", "teachers.maths.lambda=1.5"])
    assert result.exit_code == 0, result.output
    assert "0.5 (T - R)" in result.stdout
    assert "the learner, from the model under the adapter" in result.stdout
    assert "warning: teachers.maths.lambda is 1.5" in result.stdout


@pytest.mark.parametrize(("scale", "number"), [(1.25, 0), (1.4, 0), (1.41, 1), (2.0, 1)])
def test_extrapolation_is_warned_of_above_what_was_stable(scale: float, number: int) -> None:
    teachers = {"maths": {"model": "m", "lambda": scale, "reference": "r"}, "r": {"model": "r"}}
    spec = JobSpec.model_validate(job({"preset": "exopd"}, teachers))
    assert len(check_objective(spec).warnings) == number


def test_a_group_of_one_is_warned_of() -> None:
    spec = JobSpec.model_validate(job({"preset": "grpd"}, sampling={"n": 1}))
    assert any("sampling.n is 1" in warning for warning in check_objective(spec).warnings)


@pytest.mark.parametrize(
    "part", [{"gate": "correctness"}, {"clip_signal": 1.0}, {"baseline": "mean"}, {"signal": "gopd"}]
)
def test_a_divergence_refuses_what_it_has_no_use_for(part: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"leave out {next(iter(part))}"):
        JobSpec.model_validate(job({"preset": "topk-opd", **part}))
