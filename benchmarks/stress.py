"""Items of every kind, one in ten of them hostile, through a verifier with two workers: `python -m benchmarks.stress`.

The honest ones are judged before in quiet. What the machine has left of it all is looked at afterwards.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import msgspec

from benchmarks.machine import machine_facts
from potstill.contracts.verification import Limits, Verdict, VerifyItem, VerifyResult
from tests.services.verifier import test_math as cases
from tests.services.verifier.running import Verifier, eventually, running_verifier
from tests.services.verifier.sandbox import hostile
from tests.services.verifier.sandbox.programs import children, fork_servers, returns, running_programs, script

PAGE = Path("docs/results/stress.md")
WORKERS, CALLERS, BATCH, HOSTILE_SHARE = 2, 3, 25, 10
WAVES = 8  # memory is looked at after each
LEFT_BEHIND = ("potstill-left-behind", "potstill-fifo")
HARM = (
    *("fork bomb", "fork bomb that does not mind", "thread bomb", "busy loop", "busy threads", "sleep"),
    *("ignores every signal", "allocates until it dies", "one huge allocation", "a growing string", "maps memory"),
    *("prints a megabyte", "prints without end", "floods the report", "floods standard error", "crash"),
    *("hangs at its end", "kills itself", "closes everything and goes on", "opens files without end"),
)
LIMITS = Limits(wall_seconds=0.8, cpu_seconds=0.3, memory_bytes=2**26)


@dataclass(frozen=True)
class Report:
    """What came of it. Bytes are resident memory; a slope is per thousand items, over the later waves."""

    items: int
    hostile: int
    seconds: float
    quiet_seconds: float
    changed: list[str]  # honest items whose verdict is not that of the quiet run
    quiet_wrong: list[str]  # honest items whose verdict in quiet is not the right one
    scored: list[str]  # hostile items with a score above 0
    verdicts: dict[str, dict[str, int]]  # by kind, of honest items; "hostile" for the others
    processes_left: int
    files_left: list[str]
    open_files_grown: int  # the most that any process of the verifier has more than before
    service_bytes_per_thousand: float
    fork_server_bytes_per_thousand: float
    worker_bytes_per_thousand: float
    workers_ended: int


def honest_items(count: int) -> list[tuple[VerifyItem, Verdict]]:
    """Items of the four kinds by turns, and the verdicts that are right."""
    maths = [
        (VerifyItem("", "math", response, reference), right)
        for reference, response, right in (*cases.PLAIN_TEXT, *cases.NUMBERS, *cases.LISTS)
        if "!" not in reference
    ]
    right, wrong = Verdict.ACCEPTED, Verdict.WRONG_ANSWER
    letters = "ABCD"
    choice = [
        (VerifyItem("", "choice", f"So the answer is ({a}).", b), right if a == b else wrong)
        for a in letters
        for b in letters
    ]
    exact = [
        (VerifyItem("", "exact", f"The answer is {a}.", b), right if a == b else wrong)
        for a in ("Paris", "Rome", "Oslo")
        for b in ("Paris", "Rome", "Oslo")
    ]
    add = "a, b = map(int, input().split())\nprint(a + b)"
    code = [
        (script(add, "1 2", "3"), right),
        (script(add, "1 2", "4"), wrong),
        (script(f"{add}\nraise ValueError", "1 2", "3"), Verdict.RUNTIME_ERROR),
        (returns("def f(x): return sorted(x)", "f", [[3, 1, 2]], [1, 2, 3]), right),
        (returns("def f(x): return x", "f", [[3, 1, 2]], [1, 2, 3]), wrong),
        (script("print(sum(range(10**5)))", "", "4999950000"), right),
    ]
    turns = zip(*map(cycle, (maths, choice, exact, code)), strict=False)
    flat = (each for turn in turns for each in turn)
    return [(msgspec.structs.replace(each, id=f"honest-{i}"), r) for i, (each, r) in enumerate(islice(flat, count))]


def hostile_items(count: int, aims: dict[str, str]) -> list[VerifyItem]:
    """Programs that harm, reach out and forge, by turns. None may score."""
    harm = [script(hostile.ENDLESS[name][0], "", "never this", LIMITS) for name in HARM]
    reach = [script(hostile.aimed(name, aims), "", "out", LIMITS) for name in hostile.REACHING_OUT]
    forge = [script(source.replace("WANTED", "drow a"), "", "a word", LIMITS) for source in hostile.FOOLING.values()]
    forge += [returns(source, "f", [1], [1, 2, 4711]) for source in hostile.FUNCTIONS.values()]
    turns = zip(*map(cycle, (harm, reach, forge)), strict=False)
    flat = (each for turn in turns for each in turn)
    return [msgspec.structs.replace(each, id=f"hostile-{i}") for i, each in enumerate(islice(flat, count))]


def run(count: int) -> Report:
    """Judge the honest items in quiet, then all of them under stress."""
    known = honest_items(count - count // HOSTILE_SHARE)
    honest = [item for item, _ in known]
    with (
        tempfile.TemporaryDirectory() as folder,
        running_verifier(
            verifier_workers=WORKERS, verifier_deadline_seconds=30, verifier_recycle_after=10**6
        ) as verifier,
    ):
        canary = Path(folder, "canary")
        canary.write_text("a secret")
        Path(folder).chmod(0o755)
        port, service = str(verifier.http.base_url.port), str(verifier.process.pid)
        bad = hostile_items(count // HOSTILE_SHARE, {"CANARY": str(canary), "PORT": port, "SERVICE": service})
        eventually(lambda: len(verifier.workers()) == WORKERS + 1, "the spare did not start")
        started = time.monotonic()
        quiet = _judge(verifier, honest)
        quiet_seconds = time.monotonic() - started
        mixed = _mixed(honest, bad)
        files = _open_files(verifier)
        resident: list[tuple[int, int, int]] = []
        results: dict[str, VerifyResult] = {}
        started = time.monotonic()
        for wave in range(WAVES):
            results |= _judge(verifier, mixed[wave * len(mixed) // WAVES : (wave + 1) * len(mixed) // WAVES])
            resident.append(_resident(verifier))
        seconds = time.monotonic() - started
        eventually(lambda: not running_programs(verifier), "a process is left")
        left = [name for name in LEFT_BEHIND for place in ("/tmp", "/dev/shm") if Path(place, name).exists()]
        left += [] if canary.read_text() == "a secret" else [str(canary)]
        ended = sum(_ended(verifier, reason) for reason in ("deadline", "cpu", "memory", "sandbox", "died", "garbled"))
        slopes = [_slope(bytes_, len(mixed)) for bytes_ in zip(*resident, strict=True)]
        return Report(
            items=len(mixed),
            hostile=len(bad),
            seconds=seconds,
            quiet_seconds=quiet_seconds,
            changed=[f"{k}: {results[k].verdict}" for k in quiet if results[k].verdict != quiet[k].verdict],
            quiet_wrong=[i.id for i, right in known if quiet[i.id].verdict != right],
            scored=[item.id for item in bad if results[item.id].score != 0.0],
            verdicts=_verdicts(mixed, results),
            processes_left=len(running_programs(verifier)),
            files_left=left,
            open_files_grown=max(now - files.get(pid, now) for pid, now in _open_files(verifier).items()),
            service_bytes_per_thousand=slopes[0],
            fork_server_bytes_per_thousand=slopes[1],
            worker_bytes_per_thousand=slopes[2],
            workers_ended=ended,
        )


def _mixed(honest: list[VerifyItem], bad: list[VerifyItem]) -> list[VerifyItem]:
    """One hostile item after every nine honest ones."""
    groups = [honest[at : at + HOSTILE_SHARE - 1] for at in range(0, len(honest), HOSTILE_SHARE - 1)]
    return [item for place, group in enumerate(groups) for item in (*group, *bad[place : place + 1])]


def _judge(verifier: Verifier, items: Sequence[VerifyItem]) -> dict[str, VerifyResult]:
    """Several callers at once, each with a batch."""
    batches = [items[at : at + BATCH] for at in range(0, len(items), BATCH)]
    with ThreadPoolExecutor(CALLERS) as callers:
        answers = list(callers.map(lambda batch: verifier.verify(*batch), batches))
    return {result.id: result for answer in answers for result in answer}


def _verdicts(items: Sequence[VerifyItem], results: dict[str, VerifyResult]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for item in items:
        kind = "hostile" if item.id.startswith("hostile") else item.kind
        counts.setdefault(kind, Counter())[str(results[item.id].verdict)] += 1
    return {kind: dict(counted) for kind, counted in counts.items()}


def _ended(verifier: Verifier, reason: str) -> int:
    return int(verifier.metric(f'potstill_verifier_workers_ended_total{{reason="{reason}"}}'))


def _processes(verifier: Verifier) -> tuple[list[int], list[int], list[int]]:
    """The service, its fork servers, its workers."""
    return [verifier.process.pid], fork_servers(verifier), verifier.workers()


def _open_files(verifier: Verifier) -> dict[int, int]:
    pids = [pid for group in _processes(verifier) for pid in group]
    pids += [server for worker in verifier.workers() for server in children(worker)]
    return {pid: len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids}


def _resident(verifier: Verifier) -> tuple[int, int, int]:
    """Bytes of the service, of all fork servers and of all workers, shared pages counted for each."""
    page = os.sysconf("SC_PAGE_SIZE")
    service, servers, workers = (
        sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page for pid in group)
        for group in _processes(verifier)
    )
    return service, servers, workers


def _slope(resident: Sequence[int], items: int) -> float:
    """Bytes per thousand items over the later half of the waves."""
    later = resident[len(resident) // 2 :]
    return statistics.linear_regression(range(len(later)), later).slope * WAVES / items * 1000


def page(report: Report) -> str:
    facts = ", ".join(f"{key} {value}" for key, value in machine_facts().items())
    rows = [f"| {kind} | {', '.join(f'{n} {v}' for v, n in each.items())} |" for kind, each in report.verdicts.items()]
    slopes = {
        "service": report.service_bytes_per_thousand,
        "fork servers": report.fork_server_bytes_per_thousand,
        "workers": report.worker_bytes_per_thousand,
    }
    return "\n".join(
        [
            "# Verifier under stress",
            "",
            f"{report.items} items of four kinds through HTTP, {CALLERS} callers at once, {WORKERS} workers.",
            f"{report.hostile} of them are hostile programs that bomb, loop, flood, sleep, reach out or forge.",
            "",
            "| | |",
            "|---|---|",
            f"| seconds, all items | {report.seconds:.1f} |",
            f"| seconds, the honest ones before, in quiet | {report.quiet_seconds:.1f} |",
            f"| honest items whose verdict differs from that in quiet | {len(report.changed)} |",
            f"| honest items that are judged otherwise than is right, in quiet | {len(report.quiet_wrong)} |",
            f"| hostile items with a score above 0, or none | {len(report.scored)} |",
            f"| processes left, files left | {report.processes_left}, {len(report.files_left)} |",
            f"| open files more than before, in any process | {report.open_files_grown} |",
            f"| workers that died or were killed | {report.workers_ended} |",
            *(f"| growth of the {name}, KiB in 1000 items | {value / 1024:.0f} |" for name, value in slopes.items()),
            "",
            "| items | verdicts |",
            "|---|---|",
            *rows,
            "",
            "Growth is that of resident memory over the later half, all processes of a kind together; workers keep",
            "what they parsed, within bounds, and are replaced after 1000 items, which this run switched off.",
            "",
            f"Command: `python -m benchmarks.stress --items {report.items}`. Machine, shared with other work: {facts}.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=2000)
    text = page(run(parser.parse_args().items))
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
