"""What the pool promises: an end for every item, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import msgspec
import pytest

from potstill.contracts.verification import Verdict, VerifyItem
from tests.services.verifier.running import (
    EASY,
    ENDLESS,
    SLOW,
    Background,
    Verifier,
    eventually,
    is_running,
    running_verifier,
)


def named(item: VerifyItem, name: str) -> VerifyItem:
    return msgspec.structs.replace(item, id=name)


@pytest.fixture(scope="module")
def hasty_service() -> Iterator[Verifier]:
    with running_verifier(verifier_workers=1, verifier_deadline_seconds=1.5) as verifier:
        yield verifier


@pytest.fixture(scope="module")
def patient_service() -> Iterator[Verifier]:
    with running_verifier(verifier_workers=1, verifier_deadline_seconds=30) as verifier:
        yield verifier


@pytest.fixture
def hasty(hasty_service: Verifier) -> Verifier:
    return with_spare(hasty_service)


@pytest.fixture
def patient(patient_service: Verifier) -> Verifier:
    return with_spare(patient_service)


def with_spare(verifier: Verifier) -> Verifier:
    """A verifier of one worker whose spare has started, or started again."""
    eventually(lambda: verifier.metric("potstill_verifier_workers") == 2, "the spare did not start")
    return verifier


def ended(verifier: Verifier, reason: str) -> float:
    return verifier.metric(f'potstill_verifier_workers_ended_total{{reason="{reason}"}}')


def test_an_endless_item_ends_at_its_deadline_and_the_next_request_is_not_affected(hasty: Verifier) -> None:
    before, ended_before = set(hasty.workers()), ended(hasty, "deadline")
    begun = time.monotonic()
    [result] = hasty.verify(ENDLESS)
    took = time.monotonic() - begun
    assert (result.verdict, result.score) == (Verdict.UNDETERMINED, None)
    assert "1.5 s" in result.detail["reason"]
    assert 1.4 < took < 6
    begun = time.monotonic()
    assert hasty.verify(EASY)[0].verdict == Verdict.ACCEPTED
    assert time.monotonic() - begun < 1.0, "a warm worker takes the killed one's place"
    eventually(lambda: len(before & set(hasty.workers())) == 1, "the worker was not killed")
    with_spare(hasty)
    assert ended(hasty, "deadline") == ended_before + 1


def test_hostile_items_do_not_hold_up_the_honest_ones_of_their_batch() -> None:
    with running_verifier(verifier_workers=2, verifier_deadline_seconds=2) as verifier:
        items = [named(EASY, str(i)) for i in range(20)]
        items.insert(3, named(ENDLESS, "x"))
        begun = time.monotonic()
        results = verifier.verify(*items)
        assert time.monotonic() - begun < 8
        assert [r.verdict for r in results if r.id != "x"] == [Verdict.ACCEPTED] * 20
        assert results[3].verdict == Verdict.UNDETERMINED


def test_a_hostile_batch_does_not_hold_up_another_request(hasty: Verifier) -> None:
    begun = time.monotonic()
    hostile = Background(lambda: hasty.verify(*[ENDLESS] * 5))
    hasty.busy_worker()
    assert hasty.verify(EASY)[0].verdict == Verdict.ACCEPTED
    waited = time.monotonic() - begun
    assert {result.verdict for result in hostile.result()} == {Verdict.UNDETERMINED}
    assert waited < 0.6 * (time.monotonic() - begun), "it waits for one hostile item or two, not for five"


def test_an_item_whose_worker_is_killed_is_judged_by_another(patient: Verifier) -> None:
    before = ended(patient, "died")
    request = Background(lambda: patient.verify(SLOW))
    os.kill(patient.busy_worker(), signal.SIGKILL)
    assert request.result()[0].verdict == Verdict.ACCEPTED
    eventually(lambda: ended(patient, "died") == before + 1, "its end is not counted")


def test_an_item_whose_workers_die_twice_is_a_sandbox_error_and_no_score(patient: Verifier) -> None:
    request = Background(lambda: patient.verify(ENDLESS))
    for _attempt in range(2):
        os.kill(patient.busy_worker(), signal.SIGKILL)
    [result] = request.result()
    assert (result.verdict, result.score) == (Verdict.SANDBOX_ERROR, None)
    patient.wait_ready()
    assert patient.verify(EASY)[0].verdict == Verdict.ACCEPTED


@pytest.mark.slow
def test_idle_workers_that_are_killed_cost_no_verdict() -> None:
    with running_verifier(verifier_workers=2) as verifier:
        for _ in range(5):
            for pid in verifier.workers():
                os.kill(pid, signal.SIGKILL)
            assert [result.verdict for result in verifier.verify(EASY, EASY)] == [Verdict.ACCEPTED] * 2
            verifier.wait_ready()


def test_a_worker_stops_itself_when_the_service_cannot_stop_it(hasty: Verifier) -> None:
    request = Background(lambda: hasty.verify(ENDLESS))
    worker = hasty.busy_worker()
    hasty.process.send_signal(signal.SIGSTOP)
    try:
        eventually(lambda: not is_running(worker), "the limit on CPU time did not bite")
    finally:
        hasty.process.send_signal(signal.SIGCONT)
    assert request.result()[0].verdict == Verdict.UNDETERMINED


def test_the_limit_on_memory_bites() -> None:
    code = "from services.verifier.limits import limit_memory; assert limit_memory(2**28); bytearray(2**28)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ended.stderr.strip().endswith(b"MemoryError")


@pytest.mark.slow
def test_workers_are_recycled() -> None:
    with running_verifier(verifier_workers=1, verifier_recycle_after=5) as verifier:
        results = verifier.verify(*[EASY] * 40)
        assert {result.verdict for result in results} == {Verdict.ACCEPTED}
        assert verifier.metric('potstill_verifier_workers_ended_total{reason="recycled"}') >= 6
        assert verifier.metric('potstill_verifier_workers_ended_total{reason="died"}') == 0


def test_a_full_queue_is_refused_with_advice_and_a_hopeless_request_as_too_large() -> None:
    with running_verifier(verifier_workers=1, verifier_max_pending=4, verifier_deadline_seconds=2) as verifier:
        assert verifier.post([EASY] * 5).status_code == 413
        waiting = Background(lambda: verifier.verify(*[ENDLESS] * 4))
        eventually(lambda: verifier.metric("potstill_verifier_queue_depth") == 3, "nothing waits")
        refused = verifier.post([EASY, EASY])
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        assert len(waiting.result()) == 4
        assert verifier.verify(EASY)[0].verdict == Verdict.ACCEPTED


def test_items_of_a_caller_that_hung_up_are_given_up(hasty: Verifier) -> None:
    before = hasty.http.timeout
    hasty.http.timeout = httpx.Timeout(1.0)
    with pytest.raises(httpx.ReadTimeout):
        hasty.verify(*[ENDLESS] * 30)
    hasty.http.timeout = before
    eventually(lambda: hasty.metric("potstill_verifier_queue_depth") == 0, "they still wait")


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("busy", [pytest.param(False, marks=pytest.mark.slow), True])
def test_no_worker_outlives_the_service(ending: signal.Signals, busy: bool) -> None:
    with running_verifier(verifier_workers=2, verifier_deadline_seconds=30, drain_seconds=1) as verifier:
        if busy:
            Background(lambda: verifier.verify(ENDLESS, ENDLESS), may_be_cut_off=True)
            verifier.busy_worker()
        workers = verifier.workers()
        assert len(workers) == 3
        verifier.stop(ending)
        until = time.monotonic() + 3
        while any(map(is_running, workers)) and time.monotonic() < until:
            time.sleep(0.02)
        assert not any(map(is_running, workers))
