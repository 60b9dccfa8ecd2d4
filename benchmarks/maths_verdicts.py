"""Maths verdicts through the service beside bare math-verify: speed and agreement, to docs/results/maths-verdicts.*.

`python -m benchmarks.maths_verdicts`. The cases of the tests, with prose before them, in rounds in which both take
turns. Bare math-verify judges in one process with its own timeouts, and is not asked what it would not end.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from math_verify import parse, verify

from benchmarks.machine import machine_facts
from potstill.contracts.verification import Verdict, VerifyItem
from tests.services.verifier import test_math as cases
from tests.services.verifier.running import Verifier, cpu_ticks, eventually, running_verifier

ROUNDS = 7
BATCH = 64
PROSE = "We are asked for a value. Let us work step by step, and check what we find at the end.\n"
GROUPS = ("PLAIN_TEXT", "NUMBERS", "EXPRESSIONS", "LISTS", "WRITTEN_OTHERWISE", "SETS", "UNITS")
NEVER_ENDING = (r"5^{\left(", "10^{10", "9!!!!", "10^9")


@dataclass(frozen=True)
class Case:
    group: str
    reference: str
    response: str
    right: Verdict


@dataclass
class Side:
    """What one of the two has taken, round by round."""

    rates: list[float] = field(default_factory=list)  # items a second of CPU time
    seconds: list[float] = field(default_factory=list)  # wall time of items judged one by one

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    def milliseconds(self, percent: int) -> float:
        return 1e3 * statistics.quantiles(self.seconds, n=100)[percent - 1]

    def figures(self) -> dict[str, object]:
        return {"items_per_cpu_second": self.rates, "p50_ms": self.milliseconds(50), "p99_ms": self.milliseconds(99)}


def all_cases() -> list[Case]:
    groups = ("REPORTED", *GROUPS, "WORDS_AND_CHOICES")
    return [Case(group, *row) for group in groups for row in getattr(cases, group) if row[2] != Verdict.UNDETERMINED]


def bare(reference: str, response: str) -> bool:
    """math-verify as its documentation calls it; a reference without delimiters is given some."""
    delimited = reference if "$" in reference or "\\boxed" in reference else f"${reference}$"
    return bool(verify(parse(delimited), parse(response)))


def time_bare(side: Side, items: Sequence[VerifyItem]) -> None:
    before = time.process_time()
    for item in items:
        started = time.perf_counter()
        bare(item.reference or "", item.response)
        side.seconds.append(time.perf_counter() - started)
    side.rates.append(len(items) / (time.process_time() - before))


def time_ours(side: Side, verifier: Verifier, items: Sequence[VerifyItem]) -> None:
    """The CPU time is that of the service and its workers, over a round in batches and one of single items."""
    processes = [verifier.process.pid, *verifier.workers()]
    before = sum(map(cpu_ticks, processes))
    judge(verifier, items)
    side.rates.append(len(items) * os.sysconf("SC_CLK_TCK") / (sum(map(cpu_ticks, processes)) - before))
    for item in items:
        started = time.perf_counter()
        verifier.verify(item)
        side.seconds.append(time.perf_counter() - started)


def judge(verifier: Verifier, items: Sequence[VerifyItem]) -> list[Verdict]:
    batches = [items[at : at + BATCH] for at in range(0, len(items), BATCH)]
    return [result.verdict for batch in batches for result in verifier.verify(*batch)]


def page(ours: Side, theirs: Side, count: int, rows: Sequence[tuple[Case, Verdict, bool]]) -> str:
    facts = ", ".join(f"{key} {value}" for key, value in machine_facts().items())
    ratios = [a / b for a, b in zip(ours.rates, theirs.rates, strict=True)]
    ratio = statistics.median(ratios)
    agree = sum((verdict == Verdict.ACCEPTED) == alone for _, verdict, alone in rows)
    ours_right = sum(verdict == case.right for case, verdict, _ in rows)
    alone_right = sum(alone == (case.right == Verdict.ACCEPTED) for case, _, alone in rows)
    differing = [
        f"| {_code(case.reference)} | {_code(case.response)} | {'yes' if alone else 'no'} | {verdict} "
        f"| {'ours' if verdict == case.right else 'math-verify'} |"
        for case, verdict, alone in rows
        if (verdict == Verdict.ACCEPTED) != alone
    ]
    return "\n".join(
        [
            "# Maths verdicts beside bare math-verify",
            "",
            f"{ROUNDS} rounds of {count} responses, the cases in `tests/services/verifier/test_math.py` with prose",
            "before them; both take turns. Ours: the service over HTTP with one worker; the CPU time is that of",
            f"service and worker over batches of {BATCH}, latencies are those of items sent one by one.",
            "Bare math-verify: one process, its default timeouts. Both keep what they parsed, so the first round is",
            "the slowest.",
            "",
            "| | items a second of CPU, median of rounds (range) | p50, ms | p99, ms |",
            "|---|---|---|---|",
            _row("ours", ours),
            _row("math-verify", theirs),
            "",
            f"Ours judges {ratio:.1f} times as many items ({min(ratios):.1f} to {max(ratios):.1f} by rounds).",
            f"Aim, to be no slower: {'met' if ratio >= 1 else 'missed'}.",
            "",
            f"On {len(rows)} cases with a known verdict: they agree on {agree}; ours is right on {ours_right},",
            f"math-verify on {alone_right}.",
            "The cases are those that ours is tested on: they say what differs, not how often it does.",
            "",
            "| reference | response | math-verify accepts | ours | who is right |",
            "|---|---|---|---|---|",
            *differing,
            "",
            f"Command: `python -m benchmarks.maths_verdicts`. Machine, shared with other work: {facts}.",
            "",
        ]
    )


def _row(name: str, side: Side) -> str:
    rate = f"{side.rate:.0f} ({min(side.rates):.0f} to {max(side.rates):.0f})"
    return f"| {name} | {rate} | {side.milliseconds(50):.2f} | {side.milliseconds(99):.1f} |"


def _code(text: str) -> str:
    shown = " ".join(text.split()).replace("|", "\\|")
    return f"`{shown[:80]}`" if shown else "(empty)"


def main() -> None:
    logging.disable(logging.ERROR)
    known = [case for case in all_cases() if not any(mark in case.response for mark in NEVER_ENDING)]
    timed = [case for case in known if case.group in GROUPS]
    ours, theirs = Side(), Side()
    judged = [VerifyItem(str(i), "math", case.response, case.reference) for i, case in enumerate(known)]
    with running_verifier(verifier_workers=1, verifier_deadline_seconds=20, verifier_recycle_after=10**6) as verifier:
        eventually(lambda: verifier.metric("potstill_verifier_workers") == 2, "the spare did not start")
        for round_ in range(ROUNDS):
            items = [
                VerifyItem(f"{round_}-{i}", "math", PROSE * (1 + (i + round_) % 3) + case.response, case.reference)
                for i, case in enumerate(timed)
            ]
            time_bare(theirs, items)
            time_ours(ours, verifier, items)
        verdicts = judge(verifier, judged)
    alone = [bare(case.reference, case.response) for case in known]
    rows = list(zip(known, verdicts, alone, strict=True))
    folder = Path("docs/results")
    (folder / "maths-verdicts.md").write_text(page(ours, theirs, len(timed), rows))
    document = {
        "name": "maths verdicts",
        "machine": machine_facts(),
        "rounds": ROUNDS,
        "responses": len(timed),
        "ours": ours.figures(),
        "math_verify": theirs.figures(),
        "cases": [
            {"reference": c.reference, "response": c.response, "right": c.right, "ours": v, "math_verify": a}
            for c, v, a in rows
        ],
    }
    (folder / "maths-verdicts.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
