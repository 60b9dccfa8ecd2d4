"""Real processes: `sleep` and small Python programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from potstill.local.supervisor import ProcessSpec, RestartPolicy, Supervisor, SupervisorError

QUICK = RestartPolicy(first_delay_seconds=0.01, longest_delay_seconds=0.05, max_deaths=3)
SLEEP = ("sleep", "60")


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    running = Supervisor(tmp_path, QUICK)
    yield running
    running.stop()


def eventually(holds: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.02)
    return holds()


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", textwrap.dedent(program))


class TestKeepingRunning:
    def test_a_killed_process_is_started_again(self, supervisor: Supervisor) -> None:
        process = supervisor.start(ProcessSpec("sleeper", SLEEP))
        first = process.pid
        os.kill(first, signal.SIGKILL)
        assert eventually(lambda: process.running is not None and process.running.pid != first)
        assert process.restarts == 1
        assert alive(process.pid)
        supervisor.check()

    def test_what_a_dead_process_left_behind_is_killed_before_it_is_started_again(
        self, supervisor: Supervisor, tmp_path: Path
    ) -> None:
        note = tmp_path / "child"
        program = f"""
            import pathlib, subprocess, time
            child = subprocess.Popen(["sleep", "60"])
            pathlib.Path({str(note)!r}).write_text(str(child.pid))
            time.sleep(60)
        """
        process = supervisor.start(ProcessSpec("parent", python(program)))
        assert eventually(lambda: note.exists() and note.read_text() != "")
        child = int(note.read_text())
        os.kill(process.pid, signal.SIGKILL)
        assert eventually(lambda: not alive(child))

    def test_environment_and_log_reach_the_process(self, supervisor: Supervisor, tmp_path: Path) -> None:
        spec = ProcessSpec(
            "talker",
            python("import os, time; print(os.environ['WORD'], flush=True); time.sleep(60)"),
            {"WORD": "hello"},
        )
        process = supervisor.start(spec)
        assert eventually(lambda: process.log_tail() == "hello")
        assert (tmp_path / "talker.log").exists()


class TestGivingUp:
    def test_a_crash_loop_ends_with_the_last_lines_of_the_log(self, supervisor: Supervisor) -> None:
        supervisor.start(
            ProcessSpec("broken", python("print('the model is missing', flush=True); raise SystemExit(3)"))
        )
        assert eventually(lambda: _failure(supervisor) is not None)
        message = str(_failure(supervisor))
        assert "broken" in message
        assert "exit code 3" in message
        assert message.endswith("the model is missing")

    def test_deaths_far_apart_are_no_crash_loop(self, tmp_path: Path) -> None:
        patient = Supervisor(tmp_path, RestartPolicy(first_delay_seconds=0.01, max_deaths=2, stable_seconds=0.1))
        try:
            process = patient.start(
                ProcessSpec("now and then", python("import time; time.sleep(0.3); raise SystemExit(1)"))
            )
            assert eventually(lambda: process.restarts >= 3)
            patient.check()
        finally:
            patient.stop()

    def test_wrong_settings_are_not_tried_again(self, supervisor: Supervisor) -> None:
        process = supervisor.start(ProcessSpec("unset", python("raise SystemExit(2)")))
        assert eventually(lambda: _failure(supervisor) is not None)
        assert process.restarts == 0

    def test_a_command_that_does_not_exist_fails_at_once(self, supervisor: Supervisor) -> None:
        with pytest.raises(SupervisorError, match="could not be started"):
            supervisor.start(ProcessSpec("nothing", ("/no/such/program",)))


class TestStopping:
    def test_the_last_started_stops_first(self, supervisor: Supervisor, tmp_path: Path) -> None:
        order = tmp_path / "order"
        for name in ("queue", "gateway", "learner"):
            program = f"""
                import signal, sys, time
                def end(*_):
                    open({str(order)!r}, "a").write({name!r} + " ")
                    sys.exit(0)
                signal.signal(signal.SIGTERM, end)
                print("up", flush=True)
                time.sleep(60)
            """
            process = supervisor.start(ProcessSpec(name, python(program)))
            assert eventually(lambda process=process: process.log_tail() == "up")
        supervisor.stop()
        assert order.read_text().split() == ["learner", "gateway", "queue"]

    def test_a_process_that_ignores_sigterm_is_killed(self, supervisor: Supervisor) -> None:
        program = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
        process = supervisor.start(ProcessSpec("deaf", python(program), stop_seconds=0.2))
        assert eventually(lambda: process.log_tail() == "up")
        pid = process.pid
        supervisor.stop()
        assert not alive(pid)

    def test_nothing_survives_a_supervisor_that_was_killed(self, tmp_path: Path) -> None:
        program = f"""
            import subprocess, sys, time
            from pathlib import Path
            from potstill.local.supervisor import ProcessSpec, Supervisor
            parent = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
            supervisor = Supervisor(Path({str(tmp_path)!r}))
            process = supervisor.start(ProcessSpec("parent", (sys.executable, "-c", parent)))
            while not process.log_tail():
                time.sleep(0.01)
            print(process.pid, process.log_tail(), flush=True)
            time.sleep(60)
        """
        owner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
        assert owner.stdout is not None
        child, grandchild = map(int, owner.stdout.readline().split())
        assert alive(child)
        assert alive(grandchild)
        owner.kill()
        owner.wait()
        assert eventually(lambda: not alive(child) and not alive(grandchild))


def _failure(supervisor: Supervisor) -> SupervisorError | None:
    try:
        supervisor.check()
    except SupervisorError as error:
        return error
    return None
