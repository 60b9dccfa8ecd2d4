"""An unprivileged pod: uid 65534, no capabilities, no namespaces. Landlock, seccomp and limits carry it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from potstill.contracts.verification import Verdict, VerifyItem
from tests.services.verifier.running import EASY, Verifier, eventually, running_verifier, started_verifier
from tests.services.verifier.sandbox import hostile
from tests.services.verifier.sandbox.programs import SUM, judge, returns, running_programs, script

FEW = ("fork bomb", "thread bomb", "busy loop", "sleep", "allocates until it dies", "prints without end", "crash")
POD = (sys.executable, "-m", "tests.services.verifier.sandbox.pod")


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    tried = subprocess.run([*POD, sys.executable, "-c", "pass"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"an ordinary user cannot start this interpreter here: {tried.stderr[-200:]}")
    with running_verifier(POD, verifier_workers=2) as started:
        yield started


def named(items: dict[str, VerifyItem]) -> list[VerifyItem]:
    return [msgspec.structs.replace(item, id=name) for name, item in items.items()]


def test_it_says_what_is_in_force_and_what_is_not(verifier: Verifier) -> None:
    layers = set(verifier.isolation())
    assert {"no_new_privileges", "landlock", "seccomp", "rlimit_as", "rlimit_cpu", "rlimit_nofile"} <= layers
    assert not {name for name in layers if name.endswith("_namespace")}
    status = Path(f"/proc/{verifier.workers()[0]}/status").read_text()
    assert "CapEff:\t0000000000000000" in status
    assert judge(verifier, SUM).verdict == Verdict.ACCEPTED


@pytest.mark.parametrize("names", [FEW, pytest.param(tuple(hostile.ENDLESS), marks=pytest.mark.slow)], ids=len)
def test_programs_that_will_not_end_well_get_their_verdicts(verifier: Verifier, names: tuple[str, ...]) -> None:
    items = named({name: script(hostile.ENDLESS[name][0], "", "x", hostile.limits(name)) for name in names})
    results = verifier.verify(*items, SUM)
    wrong = [result for result in results[:-1] if result.verdict not in hostile.ENDLESS[result.id][1]]
    assert wrong == []
    assert results[-1].verdict == Verdict.ACCEPTED
    eventually(lambda: not running_programs(verifier), "a process is left")


def test_programs_cannot_reach_out(verifier: Verifier, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("a secret")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    aims = {"CANARY": str(canary), "PORT": str(verifier.http.base_url.port), "SERVICE": str(verifier.process.pid)}
    items = named({n: script(hostile.aimed(n, aims), "", "out") for n in hostile.REACHING_OUT})
    escaped = [result.id for result in verifier.verify(*items) if result.score != 0.0]
    assert escaped == []
    assert canary.read_text() == "a secret"
    assert verifier.http.get("/readyz").status_code == 200
    eventually(lambda: not running_programs(verifier), "a process is left")


def test_programs_cannot_forge_verdicts(verifier: Verifier) -> None:
    wanted = "0123456789abcdef"
    scripts = {n: script(source.replace("WANTED", wanted[::-1]), "", wanted) for n, source in hostile.FOOLING.items()}
    functions = {n: returns(source, "f", [1], [1, 2, 4711]) for n, source in hostile.FUNCTIONS.items()}
    forged = [result.id for result in verifier.verify(*named(scripts), *named(functions)) if result.score != 0.0]
    assert forged == []


def unready(verifier: Verifier) -> str:
    with contextlib.suppress(httpx.TransportError):
        response = verifier.http.get("/readyz")
        if response.status_code == 503 and "self-test" not in response.json()["detail"]:
            return str(response.json()["detail"])
    return ""


def test_it_is_not_ready_when_a_layer_is_required_that_the_host_refuses() -> None:
    with started_verifier(None, POD, isolation_minimum="seccomp, pid_namespace") as started:
        detail = eventually(lambda: unready(started), "it became ready")
        assert "POTSTILL_ISOLATION_MINIMUM asks for pid_namespace" in detail
        assert "Operation not permitted" in detail


def test_without_landlock_and_namespaces_programs_are_refused_and_the_rest_is_judged() -> None:
    with running_verifier((*POD, "--without-landlock")) as started:
        assert started.http.get("/v1/capabilities").json()["features"] == ["choice", "exact", "math"]
        assert started.verify(EASY)[0].verdict == Verdict.ACCEPTED
        refused = started.post([SUM])
        assert (refused.status_code, refused.json()["code"]) == (422, "unknown_kind")
        assert "landlock or mount_namespace or gvisor is not in force" in refused.json()["detail"]
