"""Programs that want to harm, hang or fool. After each, nothing of it is left, and the service answers at once."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from potstill.contracts.verification import Limits, Verdict, VerifyItem
from tests.services.verifier.running import Verifier, eventually
from tests.services.verifier.sandbox import hostile
from tests.services.verifier.sandbox.programs import (
    MIB,
    QUICK,
    SUM,
    function,
    judge,
    returns,
    running_programs,
    script,
)

SECRET = secrets.token_hex(16)


@pytest.fixture(autouse=True)
def nothing_is_left(verifier: Verifier) -> Iterator[None]:
    yield
    eventually(lambda: not running_programs(verifier), "a process is left")
    begun = time.monotonic()
    assert judge(verifier, SUM).verdict == Verdict.ACCEPTED
    assert time.monotonic() - begun < 5
    assert verifier.metric('potstill_verifier_workers_ended_total{reason="sandbox"}') == 0
    assert verifier.metric('potstill_verifier_workers_ended_total{reason="died"}') == 0


@pytest.mark.parametrize("name", hostile.ENDLESS)
def test_a_program_that_will_not_end_well_gets_its_verdict(verifier: Verifier, name: str) -> None:
    source, verdicts = hostile.ENDLESS[name]
    begun = time.monotonic()
    result = judge(verifier, script(source, "", "never this", hostile.limits(name)))
    assert result.verdict in verdicts, result
    assert result.score == 0.0
    assert time.monotonic() - begun < 30


def test_time_is_charged_as_it_was_used(verifier: Verifier) -> None:
    busy = judge(verifier, script("while True: pass", limits=Limits(wall_seconds=20, cpu_seconds=1)))
    assert "CPU" in busy.detail["reason"]
    asleep = judge(verifier, script("import time; time.sleep(60)", limits=Limits(wall_seconds=1, cpu_seconds=20)))
    [test] = asleep.detail["tests"]
    assert "it ran for" in asleep.detail["reason"]
    assert (test["cpu_seconds"] < 0.5, test["wall_seconds"] >= 1) == (True, True)


def test_right_output_longer_than_a_pipe_is_accepted(verifier: Verifier) -> None:
    wanted = "\n".join(str(i) for i in range(34_000))
    assert len(wanted) > 190_000
    assert judge(verifier, script("print('\\n'.join(str(i) for i in range(34_000)))", "", wanted)).score == 1.0


@pytest.mark.parametrize("name", hostile.REACHING_OUT)
def test_a_program_cannot_reach_out(verifier: Verifier, tmp_path: Path, name: str) -> None:
    """Each would print the expected text if what it tries succeeded."""
    canary = tmp_path / "canary"
    canary.write_text(SECRET)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    port = str(verifier.http.base_url.port)
    aims = {"CANARY": str(canary), "PORT": port, "SERVICE": str(verifier.process.pid)}
    result = judge(verifier, script(hostile.aimed(name, aims), "", "out", QUICK))
    assert result.verdict in (hostile.RUNTIME, hostile.WRONG), result
    assert canary.read_text() == SECRET
    assert not [path for path in (Path("/tmp"), Path("/dev/shm")) if (path / "potstill-left-behind").exists()]


@pytest.mark.parametrize("name", hostile.FOOLING)
def test_a_program_cannot_forge_its_verdict(verifier: Verifier, name: str) -> None:
    wanted = secrets.token_hex(8)
    source = hostile.FOOLING[name].replace("WANTED", wanted[::-1])
    result = judge(verifier, script(source, "some input", wanted, Limits(wall_seconds=4, cpu_seconds=3)))
    assert result.score == 0.0, result
    assert result.verdict in (hostile.WRONG, hostile.RUNTIME, hostile.TIME), result


@pytest.mark.parametrize("made_here", [False, True])
def test_outputs_of_earlier_programs_are_not_in_memory(verifier: Verifier, made_here: bool) -> None:
    """What one program prints, another of the same problem must print. The search itself is tried out too."""
    first, second = secrets.token_hex(8), secrets.token_hex(8)
    honest = f"print('{first}' + '{second}')"
    for _ in range(6):
        assert judge(verifier, script(honest, "", first + second)).score == 1.0
    source = hostile.SEARCH.replace("FIRST", first[::-1])
    if made_here:
        source = f"made = ''.join(['{first}', '{second}'])\n{source}"
    expected = f"found {second}" if made_here else "nothing"
    result = judge(verifier, script(source, "", expected, Limits(wall_seconds=30, cpu_seconds=25)))
    assert result.verdict == Verdict.ACCEPTED, result


@pytest.mark.parametrize("name", hostile.FUNCTIONS)
@pytest.mark.parametrize("form", ["call", "check", "assertion", "opaque assertion"])
def test_a_function_cannot_forge_its_verdict(verifier: Verifier, name: str, form: str) -> None:
    source = hostile.FUNCTIONS[name]
    wanted = [1, 2, secrets.randbelow(10**9)]
    item = {
        "call": returns(source, "f", [1], wanted),
        "check": function(source, "f", {"code": f"def check(candidate):\n    assert candidate(1) == {wanted}"}),
        "assertion": function(source, None, {"code": f"assert f(1) == {wanted}"}),
        "opaque assertion": function(source, None, {"code": f"x = f(1)\nassert x == {wanted}, x"}),
    }[form]
    result = judge(verifier, item)
    assert result.verdict in (hostile.WRONG, hostile.RUNTIME), result
    assert result.score == 0.0


def test_hostile_programs_do_not_disturb_others_in_flight(verifier: Verifier) -> None:
    names = ("fork bomb", "allocates until it dies", "prints without end", "sleep")
    harm = [script(hostile.ENDLESS[name][0], "", "x", Limits(1, 1, 64 * MIB)) for name in names]
    honest = [VerifyItem(f"honest-{i}", "code", SUM.response, tests=SUM.tests) for i in range(30)]
    mixed = [item for i, each in enumerate(honest) for item in ([each, harm[i % 4]] if i % 6 == 0 else [each])]
    results = verifier.verify(*mixed)
    assert [r.verdict for r in results if r.id.startswith("honest")] == [Verdict.ACCEPTED] * 30
    assert {r.score for r in results if r.id == "one"} == {0.0}
