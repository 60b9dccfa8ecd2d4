"""What is compared: settings, each with its student, its teachers and its arms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.objectives.models import DOMAINS, RL_TEACHER, build_domains, build_rl_teacher
from examples.small_pair.train import FOLDER as PAIR
from examples.small_pair.train import build_pair

STEPS = 60
OFFSET = 0.1
SHARED = {
    "sampling": {"n": 4, "temperature": 1.0, "max_tokens": 4},
    "training": {
        "steps": STEPS, "prompts_per_step": 32, "schedule": "linear", "warmup_steps": 6, "max_staleness": 1,
    },
    "eval": {"every": 0, "n": 1, "temperature": 0.0},
}  # fmt: skip


@dataclass(frozen=True)
class Arm:
    name: str
    objective: Mapping[str, Any]
    scale: float | None = None  # λ of ExOPD; the reference is the student as it began


@dataclass(frozen=True)
class Setting:
    name: str
    title: str
    student: Path
    teachers: Mapping[str, Path]  # those that score
    data: Path  # holds train.jsonl and heldout.jsonl
    arms: tuple[Arm, ...]
    build: Callable[[], object]
    described: Callable[[], str]
    lr: float = 5e-4

    @property
    def models(self) -> dict[str, str]:
        """Every teacher process: those that score, and the student as it began."""
        return {name: str(path.absolute()) for name, path in self.teachers.items()} | {
            "start": str(self.student.absolute())
        }

    def job(self, arm: Arm, seed: int) -> dict[str, Any]:
        teachers: dict[str, Any] = {name: {"model": self.models[name]} for name in self.teachers}
        if arm.scale is not None:
            teachers = {name: spec | {"reference": "start", "lambda": arm.scale} for name, spec in teachers.items()}
            teachers["start"] = {"model": self.models["start"]}
        return {
            "name": "objectives",
            "seed": seed,
            "student": {"model": str(self.student.absolute()), "dtype": "float32"},
            "teachers": teachers,
            "data": {name: str(self.data.absolute() / f"{name}.jsonl") for name in ("train", "heldout")},
            "objective": dict(arm.objective),
            **SHARED,
            "training": SHARED["training"] | {"lr": self.lr},
        }


OPD = Arm("OPD", {"preset": "opd"})
OPDVR = Arm("OPDVR (correctness gate)", {"preset": "opdvr"})
GRPD = Arm("GRPD, A over std", {"preset": "grpd", "group_scale_offset": OFFSET})


def exopd(scale: float) -> Arm:
    return Arm(f"ExOPD, λ {scale:g}", {"preset": "exopd"}, scale)


def _accuracy(path: Path, *keys: str) -> float:
    found = json.loads(path.read_text())
    for key in keys:
        found = found[key]
    return float(found)


def _pair_described() -> str:
    teacher, student = (_accuracy(PAIR / "pair.json", model, "accuracy") for model in ("teacher", "student"))
    return (
        "Sums of four digits. Both models were taught by supervision, the student is an early snapshot: it begins at\n"
        f"{student:.3f}, the teacher is at {teacher:.3f}. The budget is short on purpose: with 250 steps the better\n"
        "ones all reach the teacher, see [the pair's page](pair-torch.md)."
    )


def _domains_described() -> str:
    facts, domains = DOMAINS / "facts.json", ("digits", "numbers")
    at = [
        f"{model} " + " / ".join(format(_accuracy(facts, model, domain, "accuracy"), ".3f") for domain in domains)
        for model in ("student", *domains)
    ]
    return (
        "Half of the rows are sums of four digits, half sums of two numbers below a hundred; each row names its\n"
        "teacher, and only that one scores it. Both teachers were made from the student by supervision on their own\n"
        f"domain. Accuracy on digits / numbers: {', '.join(at)}."
    )


def _rl_described() -> str:
    before, after = (_accuracy(RL_TEACHER / "facts.json", when) for when in ("before", "after"))
    return (
        "The teacher is the pair's student after a Potstill job with λ = 0 and w = 1, that is reinforcement learning\n"
        f"on verified answers with a KL to the start: greedy {before:.3f} → {after:.3f}. The reference of ExOPD is\n"
        "the model that the teacher was made from, the case in which extrapolation is said to pass the teacher."
    )


SETTINGS = (
    Setting(
        "one teacher",
        "One teacher",
        PAIR / "student",
        {"sums": PAIR / "teacher"},
        PAIR,
        (
            OPD,
            exopd(0.5),
            exopd(1.25),
            exopd(1.5),
            OPDVR,
            Arm("inverse gate", {"gate": "inverse"}),
            GRPD,
            Arm("GRPD, A alone", {"preset": "grpd", "group_scale_offset": OFFSET, "normalization": "mean"}),
            Arm("relative gate", {"gate": "relative"}),
            Arm("OPD + outcome", {"preset": "opd+grpo"}),
            Arm("top-8, reverse KL", {"preset": "topk-opd", "top_k": 8}),
            Arm(
                "top-8 of the teacher, forward KL",
                {"preset": "topk-opd", "top_k": 8, "candidates": "teacher", "divergence": "forward_kl"},
            ),
        ),
        build_pair,
        _pair_described,
    ),
    Setting(
        "two domains",
        "Two teachers, one for each domain",
        DOMAINS / "student",
        {"digits": DOMAINS / "digits", "numbers": DOMAINS / "numbers"},
        DOMAINS,
        (OPD, exopd(1.25), OPDVR, GRPD),
        build_domains,
        _domains_described,
        lr=2e-4,
    ),
    Setting(
        "teacher by RL",
        "A teacher made by reinforcement learning from the student",
        PAIR / "student",
        {"rl": RL_TEACHER},
        PAIR,
        (OPD, exopd(1.25), exopd(1.5), OPDVR),
        build_rl_teacher,
        _rl_described,
    ),
)
