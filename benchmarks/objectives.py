"""Which objective teaches most for the same budget? `python -m benchmarks.objectives`, to docs/results/objectives.*

The small pair's student and teacher, one running platform, one job after the other: every objective with every seed,
the same steps, prompts, samples and learning rate. What is done is kept in artifacts/objectives and not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.machine import machine_facts
from examples.small_pair.train import FOLDER, build_pair
from potstill.client import Client
from potstill.contracts.state import JobState
from potstill.local.stack import Stack, StackSpec, TeacherProcess, Threads

RUNS = Path("artifacts/objectives")
RESULTS = Path("docs/results")
STEPS, LAST = 60, 10
OFFSET = 0.1
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}  # by seeds
SHARED = {
    "sampling": {"n": 4, "temperature": 1.0, "max_tokens": 4},
    "training": {
        "steps": STEPS, "prompts_per_step": 32, "lr": 5e-4, "schedule": "linear", "warmup_steps": 6, "max_staleness": 1,
    },
    "eval": {"every": 0, "n": 1, "temperature": 0.0},
}  # fmt: skip


@dataclass(frozen=True)
class Arm:
    name: str
    objective: Mapping[str, Any]
    scale: float | None = None  # λ of ExOPD; the reference is the student as it began


ARMS = (
    Arm("OPD", {"preset": "opd"}),
    Arm("ExOPD, λ 0.5", {"preset": "exopd"}, 0.5),
    Arm("ExOPD, λ 1.25", {"preset": "exopd"}, 1.25),
    Arm("ExOPD, λ 1.5", {"preset": "exopd"}, 1.5),
    Arm("OPDVR (correctness gate)", {"preset": "opdvr"}),
    Arm("inverse gate", {"gate": "inverse"}),
    Arm("GRPD, A over std", {"preset": "grpd", "group_scale_offset": OFFSET}),
    Arm("GRPD, A alone", {"preset": "grpd", "group_scale_offset": OFFSET, "normalization": "mean"}),
    Arm("OPD + outcome", {"preset": "opd+grpo"}),
    Arm("top-8, reverse KL", {"preset": "topk-opd", "top_k": 8}),
    Arm("top-8 of the teacher, forward KL",
        {"preset": "topk-opd", "top_k": 8, "candidates": "teacher", "divergence": "forward_kl"}),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    arm: str
    seed: int
    before: float
    after: float
    reverse_kl: float  # nats a token, mean of the last steps
    seconds: float


def job(arm: Arm, seed: int) -> dict[str, Any]:
    teachers: dict[str, Any] = {"sums": {"model": str(FOLDER.absolute() / "teacher")}}
    if arm.scale is not None:
        teachers["sums"] |= {"reference": "start", "lambda": arm.scale}
        teachers["start"] = {"model": str(FOLDER.absolute() / "student")}
    return {
        "name": "objectives",
        "seed": seed,
        "student": {"model": str(FOLDER.absolute() / "student"), "dtype": "float32"},
        "teachers": teachers,
        "data": {name: str(FOLDER.absolute() / f"{name}.jsonl") for name in ("train", "heldout")},
        "objective": dict(arm.objective),
        **SHARED,
    }


def platform() -> Stack:
    models = {"sums": "teacher", "start": "student"}
    return Stack(
        StackSpec(
            artifacts=RUNS,
            student_model=str(FOLDER.absolute() / "student"),
            teachers={
                name: TeacherProcess(str(FOLDER.absolute() / model), "float32") for name, model in models.items()
            },
            student_dtype="float32",
            max_length=64,
            student_slots=128,
            threads=Threads(1, 1, 1),
            data_roots=(FOLDER.absolute(),),
        )
    )


def run(stack: Stack, client: Client, arm: Arm, seed: int) -> Outcome:
    submitted = client.submit(job(arm, seed))
    for _event in client.events(submitted.id):
        stack.check()
    ended = client.get(submitted.id)
    if ended.status is not JobState.SUCCEEDED or ended.heldout is None:
        raise SystemExit(f"objectives: {arm.name}, seed {seed}: {ended.status}: {ended.error}")
    steps = [step.values for step in client.metrics(ended.id)]
    last = [float(values["reverse_kl"] or 0.0) for values in steps[-LAST:]]
    seconds = (ended.finished_at or 0.0) - (ended.started_at or 0.0)
    return Outcome(arm.name, seed, ended.heldout.before, ended.heldout.after, statistics.fmean(last), round(seconds, 1))


def outcomes(seeds: Sequence[int]) -> list[Outcome]:
    """One of each arm with each seed, seed by seed, so that what stops early is still balanced."""
    RUNS.mkdir(parents=True, exist_ok=True)
    kept = RUNS / "outcomes.jsonl"
    done = [Outcome(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {(each.arm, each.seed) for each in done}
    wanted = [(seed, arm) for seed in seeds for arm in ARMS if (arm.name, seed) not in known]
    if wanted:
        with platform() as stack, stack.client() as client:
            for seed, arm in wanted:
                outcome = run(stack, client, arm, seed)
                with kept.open("a") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
                print(f"seed {seed}  {arm.name}: {outcome.after:.3f}, {outcome.seconds:.0f} s", flush=True)
                done.append(outcome)
    return [each for each in done if each.seed in seeds]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half of the 95% interval over seeds, from Student's t."""
    return statistics.fmean(values), T_95[len(values)] * statistics.stdev(values) / len(values) ** 0.5


def _told(values: Sequence[float], sign: str = "") -> str:
    mean, half = interval(values)
    return f"{mean:{sign}.3f} ± {half:.3f}"


def page(found: Sequence[Outcome], seeds: Sequence[int]) -> str:
    by_arm = {arm.name: sorted((o for o in found if o.arm == arm.name), key=lambda o: o.seed) for arm in ARMS}
    plain = by_arm["OPD"]
    rows = []
    for arm in ARMS:
        own = by_arm[arm.name]
        accuracy = _told([o.after for o in own])
        gain = _told([o.after - p.after for o, p in zip(own, plain, strict=True)], "+") if own != plain else ""
        kl = _told([o.reverse_kl for o in own])
        rows.append(f"| {arm.name} | {accuracy} | {gain} | {kl} | {statistics.fmean(o.seconds for o in own):.0f} |")
    teacher = json.loads((FOLDER / "pair.json").read_text())["teacher"]
    facts = ", ".join(f"{key} {value}" for key, value in machine_facts().items())
    return "\n".join(
        [
            "# Objectives, side by side",
            "",
            f"The small pair (sums of four digits): the student begins at {plain[0].before:.3f}, the teacher is at",
            f"{teacher['accuracy']:.3f}. {len(seeds)} seeds, {STEPS} steps of 32 prompts with 4 samples each,",
            "one learning rate for all, no tuning of any; one platform, one job after the other. The budget is short",
            "on purpose: with 250 steps the better ones all reach the teacher, see [the pair's page](pair-torch.md).",
            "",
            "![held-out accuracy and reverse KL of each objective](objectives.png)",
            "",
            f"| objective | held-out accuracy | beside OPD, paired by seed | reverse KL, last {LAST} steps | seconds |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "± is half of the 95% interval over seeds (Student's t); a gap whose interval holds zero is no gap.",
            "Accuracy is greedy, on 400 held-out problems. Reverse KL is that of the sampled tokens, in nats a token.",
            "",
            "One pair of models of under a million parameters with answers of three tokens: it says how the parts",
            "behave, not what they are worth on a language model.",
            "",
            "Command: `python -m benchmarks.objectives`",
            "",
            f"Machine: {facts}.",
            "",
        ]
    )


def plot(found: Sequence[Outcome], path: Path) -> None:
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for place, arm in enumerate(ARMS):
        own = [o for o in found if o.arm == arm.name]
        for axes, values in ((left, [o.after for o in own]), (right, [o.reverse_kl for o in own])):
            mean, half = interval(values)
            axes.errorbar(mean, place, xerr=half, fmt="o", color="black", capsize=3)
            axes.plot(values, [place] * len(values), ".", color="tab:blue", alpha=0.5)
    left.set(title="held-out accuracy", yticks=range(len(ARMS)), yticklabels=[arm.name for arm in ARMS])
    left.invert_yaxis()
    right.set(title="reverse KL at the end, nats a token")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    seeds = parser.parse_args().seeds
    build_pair()
    found = outcomes(seeds)
    (RESULTS / "objectives.md").write_text(page(found, seeds))
    document = {"name": "objectives", "machine": machine_facts(), "outcomes": [asdict(each) for each in found]}
    (RESULTS / "objectives.json").write_text(json.dumps(document, indent=1) + "\n")
    plot(found, RESULTS / "objectives.png")


if __name__ == "__main__":
    main()
