"""Processes that are started, kept running, and stopped in order; none outlives its supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from potstill.local.guard import Guard, kill_group
from potstill.service.logs import get_logger

POLL_SECONDS = 0.05
LOG_TAIL_LINES = 15
WRONG_SETTINGS_EXIT = 2  # how every process of ours ends when its settings are wrong: starting it again is no use
log = get_logger("supervisor")


class SupervisorError(Exception):
    """A process could not be kept running; the text ends with the last lines of its log, `summary` is one line."""

    def __init__(self, what: str, log_path: Path | None = None, log_tail: str = "") -> None:
        super().__init__(f"{what}. Its log ({log_path}) ends:\n{log_tail}" if log_path else what)
        last = log_tail.splitlines()[-1:]
        self.summary = f"{what}{''.join(f': {line}' for line in last)}" + (f" (log: {log_path})" if log_path else "")


@dataclass(frozen=True)
class ProcessSpec:
    """One process to keep running."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)  # on top of the supervisor's own
    stop_seconds: float = 10.0  # between SIGTERM and SIGKILL


@dataclass(frozen=True)
class RestartPolicy:
    """How often a process that dies is started again before it counts as broken."""

    first_delay_seconds: float = 0.2
    longest_delay_seconds: float = 5.0
    max_deaths: int = 3  # in a row
    stable_seconds: float = 60.0  # a process that lived this long starts a new row

    def delay(self, deaths: int) -> float:
        """Back-off before the start that follows this many deaths in a row."""
        return float(min(self.longest_delay_seconds, self.first_delay_seconds * 2 ** (deaths - 1)))


class Supervised:
    """One process, over all its starts. `pid` changes when it is restarted."""

    def __init__(self, spec: ProcessSpec, log_path: Path) -> None:
        self.spec = spec
        self.log_path = log_path
        self.restarts = 0
        self.due = time.monotonic()  # when to start it, while it is not running
        self.running: subprocess.Popen[bytes] | None = None
        self.deaths = 0  # in a row
        self.born = 0.0
        self._started = threading.Event()

    @property
    def pid(self) -> int:
        """Of the process that runs now. Raises SupervisorError while it waits for its next start."""
        process = self.running
        if process is None:
            raise SupervisorError(f"{self.spec.name} is not running at the moment")
        return process.pid

    def spawn(self) -> int:
        """Start it in a process group of its own; returns the group."""
        with self.log_path.open("ab") as sink:
            self.running = subprocess.Popen(
                self.spec.command,
                env={**os.environ, **self.spec.env},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.born = time.monotonic()
        self._started.set()
        return self.running.pid

    def wait_started(self, seconds: float) -> bool:
        return self._started.wait(seconds)

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines it wrote."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


class Supervisor:
    """Starts processes, restarts those that die, stops all in reverse order. One thread does all of it."""

    def __init__(self, log_folder: Path, policy: RestartPolicy | None = None) -> None:
        self._log_folder = log_folder
        self._policy = policy or RestartPolicy()
        self._processes: dict[str, Supervised] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._failure: SupervisorError | None = None
        log_folder.mkdir(parents=True, exist_ok=True)
        self._guard = Guard()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._thread.start()

    def start(self, spec: ProcessSpec) -> Supervised:
        """Start a process and keep it running. Raises SupervisorError when it cannot even be started."""
        process = Supervised(spec, self._log_folder / f"{spec.name}.log")
        with self._lock:
            if spec.name in self._processes:
                raise ValueError(f"a process named {spec.name} is supervised already")
            self._processes[spec.name] = process
        while not process.wait_started(POLL_SECONDS):
            self.check()
        return process

    def process(self, name: str) -> Supervised:
        """Raises KeyError."""
        return self._processes[name]

    @property
    def names(self) -> tuple[str, ...]:
        """Of all processes, in the order they were started."""
        return tuple(self._processes)

    def check(self) -> None:
        """Raises SupervisorError once a process is given up."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop everything, last started first: SIGTERM, then SIGKILL for what stays. Safe to call twice."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(POLL_SECONDS):
                for process in self._snapshot():
                    self._look_after(process)
            for process in reversed(self._snapshot()):
                self._end(process)
        except OSError as error:
            self._failure = SupervisorError(f"the supervisor lost hold of its processes: {error}")
        finally:
            self._guard.close()

    def _snapshot(self) -> list[Supervised]:
        with self._lock:
            return list(self._processes.values())

    def _look_after(self, process: Supervised) -> None:
        if process.running is None:
            if time.monotonic() >= process.due:
                self._spawn(process)
            return
        code = process.running.poll()
        if code is not None:
            self._died(process, code)

    def _spawn(self, process: Supervised) -> None:
        try:
            self._guard.watch(process.spawn())
        except OSError as error:
            self._give_up(process, f"{process.spec.name} could not be started: {error}")

    def _died(self, process: Supervised, code: int) -> None:
        assert process.running is not None
        self._bury(process)
        now = time.monotonic()
        process.deaths = process.deaths + 1 if now - process.born < self._policy.stable_seconds else 1
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if code == WRONG_SETTINGS_EXIT or process.deaths >= self._policy.max_deaths:
            times = f", {process.deaths} times in a row" if process.deaths > 1 else ""
            self._give_up(process, f"{process.spec.name} {how}{times}")
            return
        delay = self._policy.delay(process.deaths)
        log.warning("a process died and is started again", process=process.spec.name, code=code, delay_seconds=delay)
        process.due = now + delay
        process.restarts += 1

    def _bury(self, process: Supervised) -> None:
        """Take down what a dead process left in its group, so that its successor finds memory and ports free."""
        assert process.running is not None
        kill_group(process.running.pid)
        self._guard.forget(process.running.pid)
        process.running = None

    def _give_up(self, process: Supervised, what: str) -> None:
        process.due = float("inf")
        self._failure = SupervisorError(what, process.log_path, process.log_tail())

    def _end(self, process: Supervised) -> None:
        if process.running is None:
            return
        process.running.send_signal(signal.SIGTERM)
        try:
            process.running.wait(process.spec.stop_seconds)
        except subprocess.TimeoutExpired:
            log.warning("a process did not stop in time and is killed", process=process.spec.name)
            kill_group(process.running.pid)
            process.running.wait()
        self._bury(process)
