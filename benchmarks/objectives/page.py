"""The page and the plot of a study."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.objectives.settings import STEPS, Setting
from benchmarks.objectives.study import LAST, Outcome

T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}  # by seeds
Found = Mapping[str, Sequence[Outcome]]  # by setting


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half of the 95% interval over seeds, from Student's t."""
    return statistics.fmean(values), T_95[len(values)] * statistics.stdev(values) / len(values) ** 0.5


def page(settings: Sequence[Setting], found: Found, seeds: Sequence[int]) -> str:
    every = [outcome for of in found.values() for outcome in of]
    machines = sorted({outcome.machine for outcome in every})
    return "\n".join(
        [
            "# Objectives, side by side",
            "",
            f"{len(seeds)} seeds each, {STEPS} steps of 32 prompts with 4 samples, one learning rate for all of a",
            "setting, no tuning of any; one platform for each setting, one job after the other.",
            "",
            "± is half of the 95% interval over seeds (Student's t); a gap whose interval holds zero is no gap.",
            "Accuracy is greedy, on 400 held-out problems. Reverse KL is that of the sampled tokens, in nats a token,",
            f"the mean of the last {LAST} steps. The runs of a seed share their models, which each machine trains for",
            "itself.",
            "",
            "![held-out accuracy and reverse KL of each objective](objectives.png)",
            "",
            *[line for setting in settings for line in _section(setting, found[setting.name])],
            "Models of under a million parameters with answers of three tokens: this says how the parts",
            "behave, not what they are worth on a language model.",
            "",
            "Every run: [objectives.jsonl](objectives.jsonl). Command: `python -m benchmarks.objectives`",
            "",
            *[f"Machine: {machine}." for machine in machines],
            "",
        ]
    )


def _section(setting: Setting, found: Sequence[Outcome]) -> list[str]:
    by_arm = {arm.name: sorted((o for o in found if o.arm == arm.name), key=lambda o: o.seed) for arm in setting.arms}
    domains = sorted(found[0].domains)
    head = ["objective", "held-out accuracy", *domains, "beside OPD, paired by seed", "reverse KL", "seconds"]
    rows = [head, ["---"] * len(head)]
    for name, own in by_arm.items():
        gain = [o.after - p.after for o, p in zip(own, by_arm["OPD"], strict=True)]
        rows.append(
            [
                name,
                _told([o.after for o in own]),
                *[_told([o.domains[domain] for o in own]) for domain in domains],
                "" if name == "OPD" else _told(gain, "+"),
                _told([o.reverse_kl for o in own]),
                f"{statistics.fmean(o.seconds for o in own):.0f}",
            ]
        )
    told = f"{setting.described()} Learning rate {setting.lr:g}."
    return [f"## {setting.title}", "", told, "", *[f"| {' | '.join(row)} |" for row in rows], ""]


def _told(values: Sequence[float], sign: str = "") -> str:
    mean, half = interval(values)
    return f"{mean:{sign}.3f} ± {half:.3f}"


def plot(settings: Sequence[Setting], found: Found, path: Path) -> None:
    heights = [len(setting.arms) for setting in settings]
    figure = Figure(figsize=(9, 1.5 + 0.32 * sum(heights)), layout="constrained")
    grid = figure.subplots(len(settings), 2, sharey="row", squeeze=False, height_ratios=heights)
    for setting, (left, right) in zip(settings, grid, strict=True):
        for place, arm in enumerate(setting.arms):
            own = [o for o in found[setting.name] if o.arm == arm.name]
            for axes, values in ((left, [o.after for o in own]), (right, [o.reverse_kl for o in own])):
                mean, half = interval(values)
                axes.errorbar(mean, place, xerr=half, fmt="o", color="black", capsize=3)
                axes.plot(values, [place] * len(values), ".", color="tab:blue", alpha=0.5)
        left.set(yticks=range(len(setting.arms)), yticklabels=[arm.name for arm in setting.arms])
        left.set_title(f"{setting.title}: held-out accuracy", fontsize=9)
        right.set_title("reverse KL at the end, nats a token", fontsize=9)
        left.invert_yaxis()
        for axes in (left, right):
            axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
