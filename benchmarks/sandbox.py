"""Programs a second of a core in the sandbox, beside a cold Python under bubblewrap: `python -m benchmarks.sandbox`.

Everything is bound to one core. The sides take turns, and so do the sandboxes in which a layer is missing: no setting
takes one away, this benchmark changes the code that its fork servers start with.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from benchmarks.machine import machine_facts
from potstill.contracts.verification import Limits, Verdict, VerifyItem
from services.verifier.sandbox import runner
from services.verifier.sandbox.runner import Order, Sandbox, SandboxFailedError
from services.verifier.settings import GvisorOptions
from tests.services.verifier.running import running_verifier

RESULTS = Path("docs/results")
ROUNDS, WARM_UP = 30, 2
OURS, COLD, LESS, BATCH = 40, 8, 8, 64  # programs a side and round
BARE = ("-I", "-S", "-B")  # what a Python can leave out when it starts
AIM_RATE, AIM_RATIO = 150, 5
USER_ID = 65534
PLATFORM = "ptrace"  # of gVisor: the one that needs no virtual machine
SOURCE, INPUT, OUTPUT = "print(int(input()) + 1)", b"41\n", b"42\n"
REFUSED = "(_ for _ in ()).throw(OSError('left out'))"
TAKEN_AWAY = {
    "seccomp": "f.seccomp.restrict = lambda pid: None",
    "landlock": f"f.landlock.create_ruleset = lambda *paths: {REFUSED}",
    "rlimits": "f.limits.apply = lambda *limits: None",
    "namespaces": f"f.namespaces.enter = f.namespaces.enter_user = lambda: {REFUSED}",
}
TAKEN_AWAY["all of them"] = "; ".join(TAKEN_AWAY.values())


@dataclass(frozen=True)
class Timing:
    """What the rounds of one side came to; the interval holds the median of rounds with 95% probability."""

    programs: int
    per_second: float
    interval: tuple[float, float]
    p50_ms: float
    p99_ms: float


class Side:
    """Runs programs one after the other and keeps what each took."""

    def __init__(self, run_one: Callable[[], None]) -> None:
        self._run_one = run_one
        self.rounds: list[list[float]] = []

    def round(self, count: int) -> None:
        seconds = []
        for _ in range(count):
            started = time.perf_counter()
            self._run_one()
            seconds.append(time.perf_counter() - started)
        self.rounds.append(seconds)

    @property
    def rates(self) -> list[float]:
        return [len(seconds) / sum(seconds) for seconds in self.rounds[WARM_UP:]]

    def timing(self) -> Timing:
        every = sorted(1e3 * second for seconds in self.rounds[WARM_UP:] for second in seconds)
        p99 = statistics.quantiles(every, n=100)[98]
        return Timing(len(every), statistics.median(self.rates), interval(self.rates), statistics.median(every), p99)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Two order statistics between which the median lies with 95% probability, whatever the distribution."""
    ordered, count = sorted(values), len(values)
    margin = round(0.98 * count**0.5)
    return ordered[max(0, count // 2 - margin)], ordered[min(count - 1, (count - 1) // 2 + margin)]


@dataclass(frozen=True)
class Ratio:
    """How many times as many programs one side ran, by rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, side: Side, other: Side) -> Ratio:
        ratios = [ours / theirs for ours, theirs in zip(side.rates, other.rates, strict=True)]
        return cls(statistics.median(ratios), *interval(ratios))

    def __str__(self) -> str:
        return f"{self.median:.1f} ({self.low:.1f} to {self.high:.1f})"


def in_sandbox(sandbox: Sandbox) -> Callable[[], None]:
    order = Order({"mode": "stdin", "source": SOURCE}, Limits(), INPUT, 1000)

    def run_one() -> None:
        [outcome] = runner.run((sandbox, order))
        assert (outcome.ended.status, outcome.stdout) == (0, OUTPUT)

    return run_one


def under_bubblewrap(*options: str) -> None:
    """The same program in every namespace, by a Python that starts for it."""
    command = ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", "--new-session", "--proc", "/proc"]
    command += ["--dev", "/dev", "--clearenv", os.path.realpath(sys.executable), *options, "-c", SOURCE]
    ended = subprocess.run(command, input=INPUT, capture_output=True, check=True)
    assert ended.stdout == OUTPUT


@contextlib.contextmanager
def without(layer: str) -> Iterator[Sandbox]:
    changed = f"import services.verifier.sandbox.fork_server as f; {TAKEN_AWAY[layer]}; main()"
    with mock.patch.object(runner, "BOOT", runner.BOOT.removesuffix("main()") + changed):
        # Only the mount namespace shows an ordinary user an interpreter that lies in a folder of root's.
        sandbox = Sandbox.start(USER_ID if "namespaces.enter" not in TAKEN_AWAY[layer] else 0)
    with contextlib.closing(sandbox):
        yield sandbox


@contextlib.contextmanager
def through_the_service() -> Iterator[Side]:
    """A side whose every run is a batch of programs over HTTP to a service with one worker."""
    test = {"stdin": INPUT.decode(), "stdout": OUTPUT.decode()}
    batch = [VerifyItem(str(i), "code", f"```python\n{SOURCE}\n```", tests=(test,)) for i in range(BATCH)]
    with running_verifier(verifier_workers=1, verifier_recycle_after=10**6) as verifier:

        def run_one() -> None:
            assert {result.verdict for result in verifier.verify(*batch)} == {Verdict.ACCEPTED}

        yield Side(run_one)


def measure() -> tuple[dict[str, Side], tuple[str, ...]]:
    """The sides by name, and the layers that were in force for ours."""
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(contextlib.closing(Sandbox.start(USER_ID)))
        sides = {"ours": Side(in_sandbox(ours)), "bubblewrap": Side(under_bubblewrap)}
        sides["bubblewrap, bare"] = Side(lambda: under_bubblewrap(*BARE))
        sides["service"] = stack.enter_context(through_the_service())
        if shutil.which("runsc"):
            gvisor = Sandbox.start(USER_ID, GvisorOptions(platform=PLATFORM))
            sides["gVisor"] = Side(in_sandbox(stack.enter_context(contextlib.closing(gvisor))))
        for layer in TAKEN_AWAY:
            with contextlib.suppress(SandboxFailedError):
                sides[layer] = Side(in_sandbox(stack.enter_context(without(layer))))
        counts = {"ours": OURS, "bubblewrap": COLD, "bubblewrap, bare": COLD, "service": 1}
        for _ in range(WARM_UP + ROUNDS):
            for name, side in sides.items():
                side.round(counts.get(name, LESS))
        return sides, ours.layers


def page(timings: dict[str, Timing], ratios: dict[str, Ratio], layers: Sequence[str]) -> str:
    ours, service, plain, bare = timings["ours"], timings["service"], ratios["bubblewrap"], ratios["bubblewrap, bare"]
    rows = [
        _row("in the sandbox, every layer", ours),
        _row(f"the same over HTTP, batches of {BATCH}", service, BATCH),
        *([_row(f"in gVisor, platform {PLATFORM}", timings["gVisor"])] if "gVisor" in timings else []),
        _row("cold `python3` under `bwrap --unshare-all`", timings["bubblewrap"]),
        _row(f"cold `python3 {' '.join(BARE)}` under the same", timings["bubblewrap, bare"]),
    ]
    costs = [
        f"| {name} | {timings[name].p50_ms:.2f} | {ours.p50_ms - timings[name].p50_ms:+.2f} |"
        for name in TAKEN_AWAY
        if name in timings
    ]
    facts = ", ".join(f"{key} {value}" for key, value in machine_facts().items())
    return "\n".join(
        [
            "# Programs a second in the sandbox",
            "",
            f"A program of one line (`{SOURCE}`), {ROUNDS} rounds in which all take turns, everything on one core of a",
            "machine that other work shares.",
            "",
            "| | programs | a second of one core, median of rounds (95% interval) | p50, ms | p99, ms |",
            "|---|---|---|---|---|",
            *rows,
            "",
            f"Beside a cold `python3` under bubblewrap: {plain} times as many programs; beside one that skips what it",
            f"can at its start: {bare}.",
            f"Aims: {AIM_RATE} a second and core ({_met(ours.per_second >= AIM_RATE)}), {AIM_RATIO} times bubblewrap",
            f"({_met(plain.median >= AIM_RATIO)}; with the quick start {_met(bare.median >= AIM_RATIO)}).",
            "",
            "In gVisor a fork server and its programs share a kernel of their own, see docs/sandbox.md; the platform",
            "that works everywhere stops at every system call.",
            "",
            "The latency over HTTP is that of a whole batch. Bubblewrap puts neither limits nor a system call filter",
            f"nor Landlock on its program. Ours had {', '.join(layers)}.",
            "",
            "What a program costs when a layer is left out. Namespaces are made once for a fork server, so a program",
            "hardly pays for them; most of the rest is the fork itself and the end of a process.",
            "",
            "| without | p50, ms | the layer costs, ms |",
            "|---|---|---|",
            *costs,
            "",
            f"Command: `python -m benchmarks.sandbox`. Machine: {facts}.",
            "",
        ]
    )


def _row(what: str, timing: Timing, each: int = 1) -> str:
    low, high = timing.interval
    rate = f"{each * timing.per_second:.0f} ({each * low:.0f} to {each * high:.0f})"
    return f"| {what} | {each * timing.programs} | {rate} | {timing.p50_ms:.2f} | {timing.p99_ms:.2f} |"


def _met(met: bool) -> str:
    return "met" if met else "missed"


def main() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    sides, layers = measure()
    timings = {name: side.timing() for name, side in sides.items()}
    ratios = {name: Ratio.of(sides["ours"], sides[name]) for name in ("bubblewrap", "bubblewrap, bare")}
    document = {
        "name": "sandbox",
        "machine": machine_facts(),
        "layers": layers,
        "ratios": {name: vars(ratio) for name, ratio in ratios.items()},
        "programs_a_service_run": BATCH,
        "sides": {name: vars(timing) for name, timing in timings.items()},
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "sandbox.json").write_text(json.dumps(document, indent=2) + "\n")
    text = page(timings, ratios, layers)
    (RESULTS / "sandbox.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
