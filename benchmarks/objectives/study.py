"""Every arm with every seed, each once."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.machine import machine_facts
from benchmarks.objectives.running import platform, run_job
from benchmarks.objectives.settings import Arm, Setting
from potstill.client import Client
from potstill.local.stack import Stack

RUNS = Path("artifacts/objectives")
KEPT = Path("docs/results/objectives.jsonl")
LAST = 10


@dataclass(frozen=True)
class Outcome:
    setting: str
    arm: str
    seed: int
    models: str  # digest of the student and its teachers, which are trained anew on each machine
    before: float
    after: float
    reverse_kl: float  # nats a token, mean of the last steps
    seconds: float
    domains: dict[str, float] = field(default_factory=dict)  # accuracy after, where there are several
    machine: str = ""


def outcomes(setting: Setting, seeds: Sequence[int]) -> list[Outcome]:
    """One of each arm with each seed, seed by seed, so that what stops early is still balanced."""
    models = digest(setting)
    done = chosen(kept(), setting, seeds, models)
    known = {(each.arm, each.seed) for each in done}
    wanted = [(seed, arm) for seed in seeds for arm in setting.arms if (arm.name, seed) not in known]
    if wanted:
        RUNS.mkdir(parents=True, exist_ok=True)
        artifacts = RUNS / setting.name.replace(" ", "-")
        stack = platform(artifacts, setting.models, str(setting.student.absolute()), setting.data)
        with stack, stack.client() as client:
            for seed, arm in wanted:
                outcome = _run(stack, client, setting, arm, seed, models)
                with KEPT.open("a") as file:
                    file.write(json.dumps(asdict(outcome), ensure_ascii=False) + "\n")
                told = f"{setting.name}, seed {seed}, {arm.name}: {outcome.after:.3f}, {outcome.seconds:.0f} s"
                print(told, flush=True)
                done.append(outcome)
    return done


def kept() -> list[Outcome]:
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    return [Outcome(**json.loads(line)) for line in lines]


def chosen(every: Iterable[Outcome], setting: Setting, seeds: Sequence[int], models: str) -> list[Outcome]:
    """What need not be run again. A seed is compared within the same models: all arms of it, or those with `models`."""
    groups: dict[tuple[int, str], list[Outcome]] = defaultdict(list)
    for each in every:
        if each.setting == setting.name:
            groups[each.seed, each.models].append(each)
    names = {arm.name for arm in setting.arms}
    found: list[Outcome] = []
    for seed in seeds:
        whole = [own for (of, _), own in groups.items() if of == seed and {each.arm for each in own} == names]
        found += whole[0] if whole else groups.get((seed, models), [])
    return found


def digest(setting: Setting) -> str:
    content = hashlib.sha256()
    for _, folder in sorted(setting.models.items()):
        for file in sorted(Path(folder).glob("*.safetensors")):
            content.update(file.read_bytes())
    return content.hexdigest()[:12]


def _run(stack: Stack, client: Client, setting: Setting, arm: Arm, seed: int, models: str) -> Outcome:
    ended = run_job(stack, client, setting.job(arm, seed))
    assert ended.heldout is not None, "a job that succeeded has it"
    steps = [step.values for step in client.metrics(ended.id)]
    return Outcome(
        setting.name,
        arm.name,
        seed,
        models,
        ended.heldout.before,
        ended.heldout.after,
        statistics.fmean(float(values["reverse_kl"]) for values in steps[-LAST:]),
        round((ended.finished_at or 0.0) - (ended.started_at or 0.0), 1),
        {name: change.after for name, change in ended.heldout.data_sets.items()},
        ", ".join(f"{key} {value}" for key, value in machine_facts().items()),
    )
