"""The models and rows of the settings that the small pair does not cover."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from benchmarks.objectives.running import platform, run_job
from examples.folders import is_complete, replaced_when_done
from examples.small_pair.problems import NUM_HELDOUT, problems
from examples.small_pair.train import FOLDER as PAIR
from examples.small_pair.train import accuracy, build_pair, save, teach, untaught

MODELS = Path("artifacts/models")
DOMAINS = MODELS / "two-domains"
RL_TEACHER = MODELS / "rl-teacher"
STUDENT_AT = 0.35  # of both domains, the lower one
SNAPSHOT_EVERY = 25
STEPS = 600
TEACHER_STEPS = 300
TEACHER_LR = 1e-3
RL_STEPS = 120
Rows = list[tuple[str, str]]


def two_digit_problems(seed: int) -> tuple[Rows, Rows]:
    """All 10,000 sums of two numbers below a hundred, as (prompt, answer), split as the pair's are."""
    every = [(f"{left}+{right}=", str(left + right)) for left, right in itertools.product(range(100), repeat=2)]
    random.Random(f"two digits/{seed}").shuffle(every)
    return every[NUM_HELDOUT:], every[:NUM_HELDOUT]


def build_domains(folder: Path = DOMAINS) -> Path:
    """A student that half knows sums of four digits and sums of two numbers, and a teacher of each, made from it."""
    if is_complete(folder, ("digits/model.safetensors", "numbers/model.safetensors", "facts.json")):
        return folder
    digits, numbers = problems(0), two_digit_problems(0)
    with replaced_when_done(folder) as draft:
        for split in (0, 1):
            rows = [
                {"prompt": prompt, "answer": answer, "teacher": name, "data_source": name}
                for name, of in (("digits", digits), ("numbers", numbers))
                for prompt, answer in of[split][: NUM_HELDOUT // 2 if split else None]
            ]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (draft / ("heldout.jsonl" if split else "train.jsonl")).write_text(text)
        torch.manual_seed(0)
        model = untaught()

        def half_taught(step: int) -> bool:
            if step % SNAPSHOT_EVERY:
                return False
            return min(accuracy(model, digits[1]).accuracy, accuracy(model, numbers[1]).accuracy) >= STUDENT_AT

        teach(model, digits[0] + numbers[0], steps=STEPS, after=half_taught)
        save(model, draft / "student")
        facts = {"student": {"digits": accuracy(model, digits[1]), "numbers": accuracy(model, numbers[1])}}
        for name, of in (("digits", digits), ("numbers", numbers)):
            teacher = LlamaForCausalLM.from_pretrained(draft / "student")
            teach(teacher, of[0], steps=TEACHER_STEPS, peak_lr=TEACHER_LR)
            save(teacher, draft / name)
            facts[name] = {"digits": accuracy(teacher, digits[1]), "numbers": accuracy(teacher, numbers[1])}
        told = {model: {domain: asdict(each) for domain, each in of.items()} for model, of in facts.items()}
        (draft / "facts.json").write_text(json.dumps(told, indent=1) + "\n")
    return folder


def build_rl_teacher(folder: Path = RL_TEACHER) -> Path:
    """The pair's student after reinforcement learning on verified answers alone, trained by the platform itself.

    With λ = 0 the signal is S's distance from the reference only, so that the objective is w·A − KL(student, start).
    """
    if is_complete(folder, ("model.safetensors", "facts.json")):
        return folder
    build_pair()
    student = str((PAIR / "student").absolute())
    job = {
        "name": "rl-teacher",
        "student": {"model": student, "dtype": "float32"},
        "teachers": {"unused": {"model": student, "lambda": 0.0, "reference": "start"}, "start": {"model": student}},
        "data": {name: str((PAIR / f"{name}.jsonl").absolute()) for name in ("train", "heldout")},
        "objective": {"preset": "exopd", "outcome_weight": 1.0},
        "sampling": {"n": 8, "temperature": 1.0, "max_tokens": 4},
        "training": {"steps": RL_STEPS, "prompts_per_step": 32, "lr": 5e-4, "schedule": "linear", "warmup_steps": 6},
        "eval": {"every": 0, "n": 1, "temperature": 0.0},
    }
    models = {"unused": student, "start": student}
    with platform(folder.with_name("rl-teacher-run"), models, student, PAIR) as stack:
        with stack.client() as client:
            ended = run_job(stack, client, job)
        assert ended.checkpoint is not None, "a job that succeeded has one"
        assert ended.heldout is not None, "it was asked for"
        with replaced_when_done(folder) as draft:
            shutil.copytree(ended.checkpoint, draft, dirs_exist_ok=True)
            (draft / "facts.json").write_text(json.dumps(ended.heldout.model_dump(), indent=1) + "\n")
    return folder
