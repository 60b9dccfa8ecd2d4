"""Jobs on the local stack, watched: what every process did between two steps of one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis
from prometheus_client.parser import text_string_to_metric_families

from potstill.contracts.job import Job, JobSpec
from potstill.contracts.state import JobState
from potstill.local.stack import Stack, StackSpec
from potstill.local.supervisor import ProcessSpec

POLL_SECONDS = 0.05
TIMED = ("learner", "rollout")  # those that use the queue
LEARNING = ("forward", "backward", "optimizer", "publish", "checkpoint")

Step = dict[str, float]  # the numbers that the learner reports of a step


class WatchedStack(Stack):
    """The local stack, with learner and rollout workers that count their calls to the queue."""

    def _process_spec(self, name: str) -> ProcessSpec:
        spec = super()._process_spec(name)
        if name.split("-")[0] not in TIMED:
            return spec
        python, _, module = spec.command
        return ProcessSpec(name, (python, "-m", "benchmarks.queue_calls", module), spec.env)


@dataclass(frozen=True)
class Moment:
    """What is known of every process at one time."""

    at: float  # of the monotonic clock
    cpu: Mapping[str, float]  # seconds, children's included
    metrics: Mapping[str, Mapping[str, float]]  # process to sample to value; a sample is `name` or `name{value,value}`
    reading: float  # seconds of blocking reads in the queue server itself


@dataclass(frozen=True)
class Watched:
    """A job that is done, and the window between two of its steps."""

    job: Job
    steps: list[Step]  # of the window
    before: Moment
    after: Moment
    to_first_step: float  # seconds from submission to the end of the first step

    @property
    def seconds(self) -> float:
        return self.after.at - self.before.at

    @property
    def cpu(self) -> dict[str, float]:
        """Seconds in the window by process."""
        return {name: self.after.cpu[name] - seconds for name, seconds in self.before.cpu.items()}

    @property
    def busy(self) -> dict[str, float]:
        """Percent of a core in the window, of the processes that used at least one."""
        shares = {name: 100 * seconds / self.seconds for name, seconds in self.cpu.items()}
        return {name: share for name, share in shares.items() if share >= 1}

    def change(self, process: str, sample: str) -> float:
        """Of a counter, in the window."""
        now, then = self.after.metrics[process], self.before.metrics[process]
        return now.get(sample, 0.0) - then.get(sample, 0.0)

    def changes(self, process: str, name: str) -> dict[str, float]:
        """Of a counter by its labels' values, in the window."""
        samples = (sample for sample in self.after.metrics[process] if sample.startswith(f"{name}{{"))
        return {sample[len(name) + 1 : -1]: self.change(process, sample) for sample in samples}


@contextmanager
def started(spec: StackSpec) -> Iterator[tuple[WatchedStack, float]]:
    """The stack, and the seconds until all of it was ready."""
    begun = time.monotonic()
    with WatchedStack(spec) as stack:
        yield stack, time.monotonic() - begun


def watch(stack: WatchedStack, spec: JobSpec, first: int, last: int, look: Any = None) -> Watched:
    """Run a job, and look at all processes after step `first` and after step `last`.

    `look(folder)` is called after the second look, with the job's folder.
    """
    with stack.client() as client:
        begun = time.monotonic()
        job = client.submit(spec)
        folder = stack.artifacts / "jobs" / job.id
        wait_for_step(stack, folder, 1)
        to_first_step = time.monotonic() - begun
        wait_for_step(stack, folder, first)
        before = moment(stack)
        wait_for_step(stack, folder, last)
        after = moment(stack)
        if look is not None:
            look(folder)
        ended = wait_for_end(stack, job.id)
    return Watched(ended, steps_of(folder)[first:last], before, after, to_first_step)


def steps_of(folder: Path) -> list[Step]:
    """What the learner has written of its steps so far, a line that is being written left out."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def wait_for_step(stack: Stack, folder: Path, step: int) -> None:
    while not any(each["step"] >= step for each in steps_of(folder)[-1:]):
        stack.check()
        if (folder / "final").exists():
            raise RuntimeError(f"{folder} ended before step {step}")
        time.sleep(POLL_SECONDS)


def wait_for_end(stack: Stack, job_id: str) -> Job:
    """Raises RuntimeError for a job that did not succeed."""
    with stack.client() as client:
        for _ in client.events(job_id):
            stack.check()
        ended = client.get(job_id)
    if ended.status is not JobState.SUCCEEDED:
        raise RuntimeError(f"{job_id}: {ended.status}, {ended.error}")
    return ended


def moment(stack: Stack) -> Moment:
    cpu = {name: _cpu_seconds(stack.process(name).pid) for name in stack.names}
    metrics = {name: _samples(f"{url}/metrics") for name, url in stack.urls.items()}
    with redis.Redis.from_url(stack.redis_url) as server:
        reads = server.info("commandstats").get("cmdstat_xreadgroup", {})
    return Moment(time.monotonic(), cpu, metrics, reads.get("usec", 0) / 1e6)


def _cpu_seconds(pid: int) -> float:
    """User and system, its own, and of children that live or ended."""
    process = psutil.Process(pid)
    total = sum(process.cpu_times()[:4])
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ended just now
            total += sum(child.cpu_times()[:4])
    return float(total)


def _samples(url: str) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(httpx.get(url, timeout=30).text):
        for sample in family.samples:
            labels = f"{{{','.join(sample.labels.values())}}}" if sample.labels else ""
            found[f"{sample.name}{labels}"] = sample.value
    return found


def seconds_of(step: Step) -> float:
    """From the step before to this one."""
    return step["tokens"] / step["tokens_per_second"]


def learning_seconds(step: Step) -> float:
    return sum(step[f"seconds_{phase}"] for phase in LEARNING)


def queue_seconds(watched: Watched) -> dict[str, float]:
    """Of the window, in calls to the queue, by process; the server's own time in blocking reads is the learner's."""
    name = "benchmark_queue_seconds_total"
    found = {
        process: sum(watched.changes(process, name).values())
        for process in watched.before.metrics
        if process.split("-")[0] in TIMED
    }
    found["learner"] += watched.after.reading - watched.before.reading
    return found
