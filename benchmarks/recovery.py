"""How long until work goes on after a process was killed? `python -m benchmarks.recovery`

The local stack with the small pair, strictly in turns (max_staleness 0). In the middle of a job one process gets
SIGKILL; the stack's supervisor starts it again after its first delay, as Kubernetes would. Seconds are from the kill
until the first step that was begun after it is done; for the gateway until it answers a request. Beside it the time of
as many steps when nothing is killed. After each job its ledger has to hold every ticket of every step exactly once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx

from benchmarks.figures import Figure, alone, publish
from benchmarks.watched import POLL_SECONDS, steps_of, wait_for_end, wait_for_step
from examples.small_pair.train import build_pair
from potstill.cli.jobfile import JobFile, load_job
from potstill.cli.run import stack_spec
from potstill.local.stack import Stack
from potstill.local.supervisor import RestartPolicy

COMMAND = "python -m benchmarks.recovery"
JOB = Path("examples/small_pair/pair.yaml")
VICTIMS = {
    "student": "student",
    "teacher": "teacher-sums",
    "verifier": "verifier",
    "rollout worker": "rollout-0",
    "learner": "learner",
    "gateway": "gateway",
    "Valkey": "valkey",
}
NOTHING = "nothing"
STEPS, PROMPTS, CHECKPOINT_EVERY, KILL_AFTER = 12, 16, 4, 6  # the learner has two steps to replay
RESTARTS = RestartPolicy(max_deaths=1000, stable_seconds=0.1)  # every death is a first one
LONGEST_SECONDS = 300.0


def job_file() -> JobFile:
    training = {
        "steps": STEPS,
        "prompts_per_step": PROMPTS,
        "checkpoint_every": CHECKPOINT_EVERY,
        "max_staleness": 0,
        "warmup_steps": 0,
    }
    changes = [f"training.{name}={value}" for name, value in training.items()]
    return load_job(JOB, [*changes, "eval.every=0", "eval.max_problems=8"])


def one_job(stack: Stack, file: JobFile, victim: str | None) -> float:
    """Run a job, kill the process in its midst, and return the seconds until work went on."""
    with stack.client() as client:
        job = client.submit(file.spec)
    folder = stack.artifacts / "jobs" / job.id
    wait_for_step(stack, folder, KILL_AFTER)
    after = int(steps_of(folder)[-1]["step"])
    begun = time.monotonic()
    if victim is not None:
        os.kill(stack.process(victim).pid, signal.SIGKILL)
    if victim == "gateway":
        _wait(lambda: _answers(stack, job.id))
    else:
        _wait(lambda: any(step["step"] >= after + 2 for step in steps_of(folder)[-1:]))
    seconds = time.monotonic() - begun
    if victim is not None:
        _wait(lambda: _answers(stack, job.id))
    wait_for_end(stack, job.id)
    check_ledger(folder)
    return seconds


def check_ledger(folder: Path) -> None:
    """Raises RuntimeError when a ticket was lost, trained on twice, or given up."""
    entries = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    applied = Counter(entry["ticket"] for entry in entries)
    by_step = Counter(entry["step"] for entry in entries)
    if by_step != Counter(dict.fromkeys(range(1, STEPS + 1), PROMPTS)):
        raise RuntimeError(f"{folder}: tickets by step {dict(by_step)}")
    if twice := [ticket for ticket, times in applied.items() if times > 1]:
        raise RuntimeError(f"{folder}: trained on twice: {twice}")
    if given_up := [entry for entry in entries if "tombstone" in entry]:
        raise RuntimeError(f"{folder}: given up: {given_up}")


def _answers(stack: Stack, job_id: str) -> bool:
    try:
        headers = {"authorization": f"Bearer {stack.token}"}
        return httpx.get(f"{stack.url}/v1/jobs/{job_id}", headers=headers, timeout=5).is_success
    except httpx.TransportError:
        return False


def _wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"work did not go on within {LONGEST_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


def measure(names: list[str], rounds: int) -> dict[str, list[float]]:
    """Seconds of every round, by what was killed."""
    build_pair()
    file, told = job_file(), defaultdict(list)
    with tempfile.TemporaryDirectory(dir="artifacts") as folder:
        spec = stack_spec(file, Path(folder).resolve())
        with Stack(replace(spec, restarts=RESTARTS)) as stack:
            one_job(stack, file, None)  # warms up
            for _ in range(rounds):
                for name in [NOTHING, *names]:
                    told[name].append(one_job(stack, file, VICTIMS.get(name)))
                    print(f"{name}: {told[name][-1]:.2f} s", flush=True)
    return told


def figures(told: dict[str, list[float]]) -> list[Figure]:
    note = (
        f"The small pair on the local stack, {PROMPTS} prompts of 4 samples a step, a checkpoint every "
        f"{CHECKPOINT_EVERY} steps. Every job ended well, with every ticket of every step in its ledger exactly once. "
        "A process is started again 0.2 s after its death."
    )
    names = {name: f"{name} killed" for name in VICTIMS} | {NOTHING: "nothing killed, two steps"}
    return [alone(names[name], seconds, "seconds", COMMAND, note=note) for name, seconds in told.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=VICTIMS, help="kill these, and publish nothing")
    given = parser.parse_args()
    told = measure(given.only or list(VICTIMS), given.rounds)
    if given.only is None:
        publish(figures(told))


if __name__ == "__main__":
    main()
