"""Run a job for several seeds and write what came out to docs/results: `python -m benchmarks.results demo`.

A run that is already complete under `artifacts/results` is taken as it is; delete its folder to run it again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.machine import machine_facts

RUNS = Path("artifacts/results")
RESULTS = Path("docs/results")


@dataclass(frozen=True)
class Task:
    job: str
    prepare: str
    says: str


TASKS = {
    "demo": Task("examples/smollm2/demo.yaml", "examples.smollm2.prepare", "Which of four numbers is the largest."),
    "sums": Task("examples/smollm2/sums.yaml", "examples.smollm2.prepare", "Two-digit sums: a harder gain."),
    "words": Task("examples/smollm2/words.yaml", "examples.smollm2.prepare", "One-step word problems: a harder gain."),
    "pair": Task("examples/small_pair/pair.yaml", "examples.small_pair.train", "The small pair: sums of four digits."),
}


@dataclass(frozen=True)
class Run:
    """One finished run."""

    seed: int
    command: str
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]
    heldout: dict[int, float]  # step to accuracy


def run(name: str, engine: str, seed: int) -> Run:
    """Run one seed, unless its summary is there."""
    task, folder = TASKS[name], RUNS / f"{name}-{engine}-seed{seed}"
    arguments = ["run", task.job, "--engine", engine, "--seed", str(seed), "--out", str(folder)]
    if not (folder / "summary.json").exists():
        subprocess.run([sys.executable, "-m", task.prepare], check=True)
        subprocess.run([str(Path(sys.executable).with_name("potstill")), *arguments], check=True)
    summary = json.loads((folder / "summary.json").read_text())
    job = folder / "jobs" / summary["job_id"]
    metrics = [json.loads(line) for line in (job / "metrics.jsonl").read_text().splitlines()]
    evaluations = [json.loads(path.read_text()) for path in sorted((job / "eval").glob("step-*.json"))]
    heldout = {entry["step"]: entry["accuracy"] for entry in evaluations}
    return Run(seed, "potstill " + " ".join(arguments), summary, metrics, heldout)


def page(name: str, engine: str, runs: Sequence[Run]) -> str:
    """The Markdown of one result."""
    rows = [
        f"| {r.seed} | {r.summary['heldout']['n']} | {r.summary['heldout']['before']:.3f} "
        f"| {r.summary['heldout']['after']:.3f} | {r.summary['heldout']['gain']:+.3f} "
        f"| {r.summary['heldout']['interval'][0]:+.3f} to {r.summary['heldout']['interval'][1]:+.3f} "
        f"| {r.summary['steps']} | {r.summary['seconds']:.0f} |"
        for r in runs
    ]
    facts = ", ".join(f"{key} {value}" for key, value in machine_facts().items())
    return "\n".join(
        [
            f"# {name} on {engine}",
            "",
            f"{TASKS[name].says} Job: [{TASKS[name].job}](../../{TASKS[name].job}).",
            "",
            f"![accuracy and reverse KL by step]({name}-{engine}.png)",
            "",
            "| seed | held-out problems | before | after | gain | 95% paired interval | steps | seconds |",
            "|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            *_pair_note(name),
            "Seconds are from submission to the final checkpoint, evaluations included, without starting the services.",
            "",
            f"Command: `{runs[0].command}` and so on for each seed.",
            "",
            f"Machine: {facts}.",
            "",
        ]
    )


def _pair_note(name: str) -> list[str]:
    facts = Path("artifacts/models/small-pair/pair.json")
    if name != "pair" or not facts.exists():
        return []
    teacher = json.loads(facts.read_text())["teacher"]
    low, high = teacher["interval"]
    return [
        f"The teacher's own held-out accuracy: {teacher['accuracy']:.3f}, 95% interval {low:.3f} to {high:.3f}.",
        "",
    ]


def plot(name: str, engine: str, runs: Sequence[Run], path: Path) -> None:
    """Held-out accuracy and reverse KL over steps, a line a seed."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for r in runs:
        steps = sorted(r.heldout)
        left.plot(steps, [r.heldout[step] for step in steps], "o-", markersize=4, label=f"seed {r.seed}")
        right.plot([m["step"] for m in r.metrics], [m["reverse_kl"] for m in r.metrics], label=f"seed {r.seed}")
    left.set(title="held-out accuracy", xlabel="step", ylim=(0, 1.02))
    right.set(title="reverse KL, nats a token", xlabel="step")
    right.axhline(0, color="grey", linewidth=0.8)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    left.legend(loc="lower right")
    figure.suptitle(f"{name} on {engine}")
    figure.savefig(path, dpi=110)


def write(name: str, engine: str, runs: Sequence[Run]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-{engine}"
    (RESULTS / f"{stem}.md").write_text(page(name, engine, runs))
    document = {
        "name": name,
        "engine": engine,
        "machine": machine_facts(),
        "runs": [
            {"seed": r.seed, "command": r.command, "heldout_by_step": r.heldout, **_public(r.summary)} for r in runs
        ],
    }
    (RESULTS / f"{stem}.json").write_text(json.dumps(document, indent=2) + "\n")
    for r in runs:
        job = RUNS / f"{stem}-seed{r.seed}" / "jobs" / r.summary["job_id"]
        shutil.copy(job / "metrics.jsonl", RESULTS / f"{stem}-seed{r.seed}.metrics.jsonl")
    plot(name, engine, runs, RESULTS / f"{stem}.png")
    (RESULTS / "README.md").write_text(index(RESULTS))
    print(f"{RESULTS}/{stem}.md")


def index(folder: Path) -> str:
    """The Markdown that lists every result in `folder`: one line each, means over seeds and the range of gains."""
    lines, listed = [], {"README.md"}
    for path in sorted(folder.glob("*-*.json")):
        document = json.loads(path.read_text())
        if "runs" not in document:
            continue
        listed.add(f"{path.stem}.md")
        heldout = [each["heldout"] for each in document["runs"]]
        before, after, gain = (sum(h[key] for h in heldout) / len(heldout) for key in ("before", "after", "gain"))
        gains = [h["gain"] for h in heldout]
        lines.append(
            f"| [{document['name']}]({path.stem}.md) | {document['engine']} | {len(heldout)} "
            f"| {before:.3f} | {after:.3f} | {gain:+.3f} | {min(gains):+.3f} to {max(gains):+.3f} |"
        )
    return "\n".join(
        [
            "# Results",
            "",
            "Held-out accuracy before and after training, means over seeds; small gains are listed like large ones.",
            "`python -m benchmarks.results NAME --engine ENGINE` writes a page here, with its numbers and metrics.",
            "",
            "| job | engine | seeds | before | after | gain | gains by seed |",
            "|---|---|---|---|---|---|---|",
            *lines,
            "",
            "Beside them:",
            "",
            *(f"- [{_title(path)}]({path.name})" for path in sorted(folder.glob("*.md")) if path.name not in listed),
            "",
        ]
    )


def _title(page: Path) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ")


def _public(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: summary[key] for key in ("job_id", "status", "steps", "seconds", "heldout")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=TASKS)
    parser.add_argument("--engine", choices=("torch", "vllm"), default="torch")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    write(given.name, given.engine, [run(given.name, given.engine, seed) for seed in given.seeds])


if __name__ == "__main__":
    main()
