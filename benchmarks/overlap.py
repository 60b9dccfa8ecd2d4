"""Does the rollout keep working while the learner steps? `python -m benchmarks.overlap`

The demo's job with strict turns (max_staleness 0) and with one step of staleness, one thread a process, so that rollout
and learner do not fight for a core. A step that overlaps should take about the longer of the two, not their sum.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.machine import machine_facts
from benchmarks.results import RESULTS, RUNS

JOB = "examples/smollm2/demo.yaml"
STEPS, WARM_UP = 7, 2
LEARNING = ("seconds_forward", "seconds_backward", "seconds_optimizer", "seconds_publish", "seconds_checkpoint")


def steps_of(staleness: int) -> list[dict[str, Any]]:
    """The step numbers of one run, warm-up left out."""
    folder = RUNS / f"overlap-{staleness}"
    if not (folder / "summary.json").exists():
        changes = [f"training.steps={STEPS}", f"training.max_staleness={staleness}", "eval.max_problems=8"]
        changes += ["eval.every=0", *(f"local.threads.{name}=1" for name in ("student", "teacher", "learner"))]
        options = [part for change in changes for part in ("--set", change)]
        potstill = str(Path(sys.executable).with_name("potstill"))
        subprocess.run([potstill, "run", JOB, "--out", str(folder), *options], check=True)
    summary = json.loads((folder / "summary.json").read_text())
    lines = (folder / "jobs" / summary["job_id"] / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines][WARM_UP:]


def main() -> None:
    turns, overlapped = steps_of(0), steps_of(1)
    rollout = statistics.median(step["seconds_waiting"] for step in turns)
    learn = statistics.median(sum(step[name] for name in LEARNING) for step in turns)
    step_0 = statistics.median(_total(step) for step in turns)
    step_1 = statistics.median(_total(step) for step in overlapped)
    longer, total = step_1 / max(rollout, learn), step_1 / (rollout + learn)
    document = {
        "rollout_seconds": rollout,
        "learn_seconds": learn,
        "step_seconds": {"max_staleness 0": step_0, "max_staleness 1": step_1},
        "ratio_to_longer": longer,
        "ratio_to_sum": total,
        "machine": machine_facts(),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "overlap.json").write_text(json.dumps(document, indent=2) + "\n")
    lines = [
        "# Overlap of rollout and learning",
        "",
        f"The demo's job, {STEPS} steps, medians after {WARM_UP} steps of warm-up; one thread a process, two cores.",
        "",
        "| | seconds a step |",
        "|---|---|",
        f"| rollout alone (what the learner waits for at `max_staleness: 0`) | {rollout:.2f} |",
        f"| learning alone (forward, backward, optimizer, publish) | {learn:.2f} |",
        f"| step at `max_staleness: 0` | {step_0:.2f} |",
        f"| step at `max_staleness: 1` | {step_1:.2f} |",
        f"| the longer of the two, and their sum | {max(rollout, learn):.2f}, {rollout + learn:.2f} |",
        f"| step at 1 over the longer, over the sum | {longer:.2f}, {total:.2f} |",
        "",
        "Command: `python -m benchmarks.overlap`",
        "",
        f"Machine: {', '.join(f'{key} {value}' for key, value in machine_facts().items())}.",
        "",
    ]
    (RESULTS / "overlap.md").write_text("\n".join(lines))
    print("\n".join(lines))


def _total(step: dict[str, Any]) -> float:
    return float(step["seconds_waiting"] + sum(step[name] for name in LEARNING))


if __name__ == "__main__":
    main()
