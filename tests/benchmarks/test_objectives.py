"""What the study takes from runs that are done."""

from __future__ import annotations

from benchmarks.objectives.settings import SETTINGS
from benchmarks.objectives.study import Outcome, chosen

SETTING = SETTINGS[-1]


def done(seed: int, models: str, arms: int) -> list[Outcome]:
    return [Outcome(SETTING.name, arm.name, seed, models, 0.1, 0.2, 0.3, 1.0) for arm in SETTING.arms[:arms]]


def test_a_seed_is_compared_within_the_same_models() -> None:
    whole, half, mine = done(0, "theirs", len(SETTING.arms)), done(1, "theirs", 2), done(1, "ours", 1)
    other = [Outcome("another setting", "OPD", 1, "ours", 0.1, 0.2, 0.3, 1.0)]
    assert chosen([*whole, *half, *mine, *other], SETTING, [0, 1, 2], "ours") == [*whole, *mine]
