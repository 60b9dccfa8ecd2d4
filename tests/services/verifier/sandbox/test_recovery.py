"""Trouble of the sandbox itself: repaired, tried again, never a score. And the policy that asks for layers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from potstill.contracts.verification import Limits, Verdict
from tests.services.verifier.running import (
    Background,
    Verifier,
    eventually,
    is_running,
    running_verifier,
    started_verifier,
)
from tests.services.verifier.sandbox.programs import SUM, children, fork_servers, judge, running_programs, script
from tests.services.verifier.sandbox.test_pod import unready

SLOW = script("import time\ntime.sleep(1.5)\nprint('x')", "", "x")
ASLEEP = script("import time\ntime.sleep(60)\nprint('x')", "", "x", Limits(wall_seconds=60))


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    """It asks for layers that it has, so it becomes ready."""
    with running_verifier(verifier_workers=1, isolation_minimum="landlock, seccomp, rlimit_as") as started:
        yield started


def ended_for_the_sandbox(verifier: Verifier) -> float:
    return verifier.metric('potstill_verifier_workers_ended_total{reason="sandbox"}')


def busy_server(verifier: Verifier) -> int | None:
    return next((server for server in fork_servers(verifier) if children(server)), None)


def test_a_program_whose_fork_server_is_killed_is_run_again(verifier: Verifier) -> None:
    eventually(lambda: verifier.metric("potstill_verifier_workers") == 2, "the spare did not start")
    before = ended_for_the_sandbox(verifier)
    request = Background(lambda: verifier.verify(SLOW))
    os.kill(eventually(lambda: busy_server(verifier), "no program runs"), signal.SIGKILL)
    assert request.result()[0].verdict == Verdict.ACCEPTED
    eventually(lambda: ended_for_the_sandbox(verifier) == before + 1, "its end is not counted")


def test_a_program_that_somebody_kills_is_run_again(verifier: Verifier) -> None:
    request = Background(lambda: verifier.verify(SLOW))
    os.kill(eventually(lambda: running_programs(verifier), "no program runs")[0], signal.SIGKILL)
    assert request.result()[0].verdict == Verdict.ACCEPTED


def test_a_sandbox_that_fails_twice_is_no_score(verifier: Verifier) -> None:
    eventually(lambda: verifier.metric("potstill_verifier_workers") == 2, "the spare did not start")
    warm = fork_servers(verifier)  # those that start later are busy with their self-test
    request = Background(lambda: verifier.verify(ASLEEP))
    for _attempt in range(2):
        busy = eventually(lambda: next(filter(children, warm), None), "no program runs")
        os.kill(busy, signal.SIGKILL)
        warm.remove(busy)
    [result] = request.result()
    assert (result.verdict, result.score) == (Verdict.SANDBOX_ERROR, None)
    verifier.wait_ready()
    assert judge(verifier, SUM).verdict == Verdict.ACCEPTED


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_no_program_outlives_the_service(ending: signal.Signals) -> None:
    with running_verifier(verifier_workers=1, drain_seconds=1) as verifier:
        Background(lambda: verifier.verify(ASLEEP), may_be_cut_off=True)
        programs = eventually(lambda: running_programs(verifier), "no program runs")
        below = [pid for worker in verifier.workers() for pid in children(worker)] + fork_servers(verifier) + programs
        verifier.stop(ending)
        until = time.monotonic() + 5
        while any(map(is_running, below)) and time.monotonic() < until:
            time.sleep(0.02)
        assert not any(map(is_running, below))


def test_a_required_layer_that_nobody_has_keeps_it_from_being_ready() -> None:
    with started_verifier(isolation_minimum="landlock,seccomp,a_moat") as verifier:
        assert "asks for a_moat" in eventually(lambda: unready(verifier), "it became ready")


def test_a_required_layer_that_is_in_force_does_not(verifier: Verifier) -> None:
    assert verifier.http.get("/readyz").status_code == 200
