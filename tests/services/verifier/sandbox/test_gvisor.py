"""Programs on gVisor's kernel: the same verdicts, the same promises."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from potstill.contracts.verification import Limits, Verdict
from tests.services.verifier.running import Verifier, eventually, running_verifier, started_verifier
from tests.services.verifier.sandbox import hostile
from tests.services.verifier.sandbox.programs import SUM, function, judge, returns, script
from tests.services.verifier.sandbox.test_pod import named, unready

needs_gvisor = pytest.mark.skipif(
    shutil.which("runsc") is None and "CI" not in os.environ, reason="gVisor is not installed: apt-get install runsc"
)


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with running_verifier(verifier_workers=2, sandbox_backend="gvisor", sandbox_runsc_platform="ptrace") as started:
        yield started


def sandboxes() -> list[str]:
    """Processes of gVisor, anybody's."""
    return subprocess.run(["pgrep", "-f", "runsc.*potstill-gvisor"], capture_output=True, text=True).stdout.split()


def limits(name: str) -> Limits:
    """A page of memory costs more time there."""
    usual = hostile.limits(name)
    slow = hostile.MEMORY in hostile.ENDLESS[name][1]
    return Limits(usual.wall_seconds, (6 if slow else 1) * usual.cpu_seconds, usual.memory_bytes)


def folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("potstill-gvisor-*"))


@needs_gvisor
def test_it_says_so_and_runs_every_form_of_test(verifier: Verifier) -> None:
    assert {"gvisor", "seccomp", "no_new_privileges", "rlimit_as", "rlimit_cpu"} <= set(verifier.isolation())
    assert judge(verifier, SUM).verdict == Verdict.ACCEPTED
    source = "def f(x):\n    return [x, (x + 1,)]"
    assert judge(verifier, returns(source, "f", [1], [1, [2]])).verdict == Verdict.ACCEPTED
    checked = function(source, "f", {"code": "def check(g):\n    for i in range(50):\n        assert g(i)[0] == i"})
    assert judge(verifier, checked).verdict == Verdict.ACCEPTED
    wrong = function(source, "f", {"code": "def check(g):\n    assert g(1) == 3"})
    assert judge(verifier, wrong).verdict == Verdict.WRONG_ANSWER


@needs_gvisor
def test_the_kernel_that_programs_see_is_not_the_hosts(verifier: Verifier) -> None:
    source = "import os\nprint(os.uname().release)"
    assert judge(verifier, script(source, "", os.uname().release)).verdict == Verdict.WRONG_ANSWER


@needs_gvisor
def test_more_than_a_pipe_holds_goes_in_and_out(verifier: Verifier) -> None:
    text = "\n".join(str(i) for i in range(100_000))
    limits = Limits(wall_seconds=20.0, cpu_seconds=10.0)
    assert (
        judge(verifier, script("import sys\nprint(sys.stdin.read())", text, text, limits)).verdict == Verdict.ACCEPTED
    )


@needs_gvisor
@pytest.mark.slow
def test_programs_that_will_not_end_well_get_their_verdicts(verifier: Verifier) -> None:
    items = named({name: script(of[0], "", "x", limits(name)) for name, of in hostile.ENDLESS.items()})
    results = verifier.verify(*items, SUM)
    wrong = [(r.id, r.verdict, r.detail) for r in results[:-1] if r.verdict not in hostile.ENDLESS[r.id][1]]
    assert wrong == []
    assert results[-1].verdict == Verdict.ACCEPTED
    assert verifier.metric('potstill_verifier_workers_ended_total{reason="sandbox"}') == 0


@needs_gvisor
@pytest.mark.slow
def test_programs_neither_reach_out_nor_forge_verdicts(verifier: Verifier, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("a secret")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    aims = {"CANARY": str(canary), "PORT": str(verifier.http.base_url.port), "SERVICE": str(verifier.process.pid)}
    wanted = "0123456789abcdef"
    items = [
        *named({n: script(hostile.aimed(n, aims), "", "out") for n in hostile.REACHING_OUT}),
        *named({n: script(s.replace("WANTED", wanted[::-1]), "", wanted) for n, s in hostile.FOOLING.items()}),
        *named({n: returns(source, "f", [1], [1, 2, 4711]) for n, source in hostile.FUNCTIONS.items()}),
    ]
    assert [(r.id, r.verdict) for r in verifier.verify(*items) if r.score != 0.0] == []
    assert canary.read_text() == "a secret"


@needs_gvisor
def test_nothing_of_it_outlives_the_service() -> None:
    before = set(sandboxes()), set(folders())
    with running_verifier(verifier_workers=1, sandbox_backend="gvisor", sandbox_runsc_platform="ptrace") as started:
        assert set(sandboxes()) > before[0]
        assert set(folders()) > before[1]
        started.process.kill()
        started.process.wait()
        eventually(lambda: set(sandboxes()) <= before[0] and set(folders()) <= before[1], "something is left of it")


def test_it_is_not_ready_where_gvisor_is_missing() -> None:
    with started_verifier(None, sandbox_backend="gvisor", sandbox_runsc="no-such-runsc") as started:
        detail = eventually(lambda: unready(started), "it became ready")
        assert "gvisor" in detail
        assert "there is no program no-such-runsc" in detail
