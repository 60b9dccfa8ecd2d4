"""Every arm with every seed, each once."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.objectives.running import platform, run_job
from benchmarks.objectives.settings import Arm, Setting
from potstill.client import Client
from potstill.local.stack import Stack

RUNS = Path("artifacts/objectives")
LAST = 10


@dataclass(frozen=True)
class Outcome:
    setting: str
    arm: str
    seed: int
    before: float
    after: float
    reverse_kl: float  # nats a token, mean of the last steps
    seconds: float
    domains: dict[str, float] = field(default_factory=dict)  # accuracy after, where there are several


def outcomes(setting: Setting, seeds: Sequence[int]) -> list[Outcome]:
    """One of each arm with each seed, seed by seed, so that what stops early is still balanced."""
    RUNS.mkdir(parents=True, exist_ok=True)
    kept = RUNS / "outcomes.jsonl"
    every = [Outcome(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = [each for each in every if each.setting == setting.name]
    known = {(each.arm, each.seed) for each in done}
    wanted = [(seed, arm) for seed in seeds for arm in setting.arms if (arm.name, seed) not in known]
    if wanted:
        artifacts = RUNS / setting.name.replace(" ", "-")
        stack = platform(artifacts, setting.models, str(setting.student.absolute()), setting.data)
        with stack, stack.client() as client:
            for seed, arm in wanted:
                outcome = _run(stack, client, setting, arm, seed)
                with kept.open("a") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
                told = f"{setting.name}, seed {seed}, {arm.name}: {outcome.after:.3f}, {outcome.seconds:.0f} s"
                print(told, flush=True)
                done.append(outcome)
    return [each for each in done if each.seed in seeds]


def _run(stack: Stack, client: Client, setting: Setting, arm: Arm, seed: int) -> Outcome:
    ended = run_job(stack, client, setting.job(arm, seed))
    assert ended.heldout is not None, "a job that succeeded has it"
    steps = [step.values for step in client.metrics(ended.id)]
    return Outcome(
        setting.name,
        arm.name,
        seed,
        ended.heldout.before,
        ended.heldout.after,
        statistics.fmean(float(values["reverse_kl"]) for values in steps[-LAST:]),
        round((ended.finished_at or 0.0) - (ended.started_at or 0.0), 1),
        {name: change.after for name, change in ended.heldout.data_sets.items()},
    )
