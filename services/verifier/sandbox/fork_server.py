"""A warm interpreter that forks a process for every program.

It is told limits and handed files, and never reads a program, its input or its output: what lies in its memory is
copied into every program's.

Its standard library is imported already; the layers go on in the child, before the program is read.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from services.verifier.sandbox import landlock, limits, namespaces, privileges, program, seccomp
from services.verifier.sandbox.syscalls import prctl
from services.verifier.sandbox.trials import TRIALS

PR_SET_CHILD_SUBREAPER = 36
MAX_MESSAGE = 4096
FILES = 8  # standard input, output, error, report, job, start signal; a checker's and its program's pipes
OWN_FILES, STAGED_FILES = 20, 40
CPUCLOCK_SCHED = 2  # in the number of a process's clock: the scheduler's exact count
CORES = os.cpu_count() or 1
LOOK_AGAIN_MS = 2.0
STOP = b"stop"
PRELOADED = """
abc argparse array ast atexit base64 bisect calendar cmath collections contextlib copy csv dataclasses datetime decimal
enum fractions functools hashlib heapq inspect io itertools json math numbers operator pprint queue random re statistics
string struct sys textwrap threading time traceback types typing unicodedata
""".split()  # noqa: SIM905


class ForkServer:
    def __init__(self, plan: dict[str, Any], control: socket.socket) -> None:
        self._plan, self._control = plan, control
        self._readable = [Path(path) for path in plan["readable"]]
        self._devices = [Path(path) for path in plan["devices"]]
        self._layers: list[str] = []
        self._missing: dict[str, str] = {}
        self._ruleset: int | None = None
        self._interpreter_bytes = limits.address_space()
        self._pid = 0

    def prepare(self) -> None:
        """Take on what all programs share, find out which layers bite, and say so."""
        parent = os.getppid()
        limits.lift()
        entered = self._try("namespaces", namespaces.enter) or ()
        if "mount" in entered and not self._try("mount_namespace", self._enter_root):
            entered = tuple(name for name in entered if name != "mount")
        if "pid" in entered:  # without it what a program leaves behind is found in /proc
            for folder in self._plan.get("hidden", ()):
                namespaces.hide(folder)
        privileges.leave_root(self._plan["user_id"])
        if entered and "user" not in entered and self._try("user_namespace", namespaces.enter_user):
            entered += ("user",)
        if "pid" in entered:
            privileges.die_with_parent(parent)
            parent = _become_first_process()
        self._layers += [f"{name}_namespace" for name in entered]
        privileges.drop_capabilities()
        privileges.die_with_parent(parent)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._preload()
        self._try("no_new_privileges", self._forbid_new_privileges)
        self._try("landlock", self._make_ruleset)
        self._processes = limits.OWN_PROCESSES if "user" in entered else limits.SHARED_PROCESSES
        self._pid = os.getpid()
        for name, trial in TRIALS.items():
            if name != "landlock" or self._ruleset is not None:
                self._try(name, lambda trial=trial: self._hold_trial(trial))  # type: ignore[misc]
        self._control.send(json.dumps({"layers": self._layers, "missing": self._missing}).encode())

    def _try(self, layer: str, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except (OSError, ValueError) as error:
            self._missing[layer] = str(error)
            return None

    def _enter_root(self) -> bool:
        namespaces.enter_root(self._readable, self._devices)
        return True

    def _forbid_new_privileges(self) -> None:
        if privileges.forbid_new_privileges():
            self._layers.append("no_new_privileges")

    def _make_ruleset(self) -> None:
        self._ruleset = _out_of_the_way(landlock.create_ruleset(self._readable, self._devices))

    def _preload(self) -> None:
        for name in PRELOADED:
            importlib.import_module(name)
        program.warm_up()
        seccomp.warm_up()
        gc.collect()
        gc.freeze()  # so that a collection in a child does not touch, and copy, all of it

    def _hold_trial(self, trial: Any) -> None:
        """Apply a layer alone in a child that then tries what the layer forbids."""
        if (pid := os.fork()) == 0:
            try:
                self._apply_alone(trial)
                os._exit(0 if trial.bites() else 1)
            except BaseException:  # noqa: BLE001  # whatever it was, the layer has not been seen to bite
                os._exit(2)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code != 0:
            raise OSError("it cannot be applied" if code == 2 else "it was applied and does not bite")
        self._layers.append(trial.layer)

    def _apply_alone(self, trial: Any) -> None:
        if trial.layer == "landlock" and self._ruleset is not None:
            landlock.restrict(self._ruleset)
        elif trial.layer == "seccomp":
            seccomp.restrict(os.getpid())
        else:
            trial.apply()

    def serve(self) -> None:
        """One program at a time, until the other side is gone."""
        while True:
            message, files, _flags, _address = socket.recv_fds(self._control, MAX_MESSAGE, FILES)
            if not message:
                return
            if message == STOP:  # for a program that had ended already
                continue
            given = json.loads(message)
            if (pid := os.fork()) == 0:
                self._become_program(files, given)
            for file in files:
                os.close(file)
            self._control.send(json.dumps(self._wait(pid, given["cpu_seconds"])).encode())

    def _wait(self, pid: int, cpu_seconds: float) -> dict[str, Any]:
        """Wait until a program has ended, by itself, out of CPU time or because we are told to end it."""
        out_of_time = False
        watched = select.poll()
        handle = _handle_of(pid)
        if handle is not None:
            watched.register(handle, select.POLLIN)
        watched.register(self._control, select.POLLIN)
        while True:
            left = cpu_seconds - _cpu_seconds_of(pid)
            if left <= 0 and not out_of_time:
                out_of_time = True
                os.kill(pid, signal.SIGKILL)
            patience = None if out_of_time else left / CORES * 1000 + 1
            ready = {file for file, _event in watched.poll(LOOK_AGAIN_MS if handle is None else patience)}
            if handle in ready or (handle is None and _has_ended(pid)):
                break
            if ready and self._control.recv(MAX_MESSAGE) != STOP:
                os._exit(0)  # the other side is gone; the kernel ends the program with us
            if ready:
                os.kill(pid, signal.SIGKILL)
        if handle is not None:
            os.close(handle)
        _pid, status, usage = os.wait4(pid, 0)
        return {
            "status": os.waitstatus_to_exitcode(status),
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "out_of_time": out_of_time,
            "peak_bytes": usage.ru_maxrss * 1024,
            "left_over": self._sweep(),
        }

    def _sweep(self) -> int:
        """End what a program has started and left: all of it becomes our child. Returns how many there were."""
        found = 0
        while True:
            try:
                ended, _status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if ended:
                found += 1
            elif "pid_namespace" in self._layers:
                os.kill(-1, signal.SIGKILL)
            else:
                for child in children():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)

    def _become_program(self, files: list[int], given: dict[str, Any]) -> NoReturn:
        try:
            _take_files(files)
            os.setsid()
            privileges.die_with_parent(self._pid)
            allowance = limits.Allowance(given["memory_bytes"], given["cpu_seconds"], self._processes)
            limits.apply(allowance, self._interpreter_bytes)
            if self._ruleset is not None:
                landlock.restrict(self._ruleset)
            os.closerange(len(files), max(*files, self._control.fileno(), self._ruleset or 0) + 1)
            if "seccomp" in self._layers:
                seccomp.restrict(os.getpid())
            os.write(program.STARTED, b"1")
            os.close(program.STARTED)
        except BaseException:  # noqa: BLE001  # without the start signal, what follows is a failure of the sandbox
            os._exit(1)
        program.run()


def _become_first_process() -> int:
    """Go on in a child, the first of its namespace; this process waits for it. Returns the child's parent."""
    pid = os.fork()
    if pid == 0:
        return 0
    os.closerange(3, 256)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)


def _handle_of(pid: int) -> int | None:
    """What is readable when a process has ended. Older gVisors have none: then one looks again and again."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _cpu_seconds_of(pid: int) -> float:
    """What all threads of a process have used. Its end does not matter: it is ours to wait for."""
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def children() -> list[int]:
    """Of this process."""
    listed = Path("/proc/self/task").glob("*/children")
    return [int(pid) for path in listed for pid in path.read_text().split()]


def _out_of_the_way(file: int) -> int:
    """Move a file of our own past the numbers that a program's files get."""
    moved = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, OWN_FILES)
    os.close(file)
    return moved


def _take_files(files: list[int]) -> None:
    """Move the files to the numbers from 0 on."""
    high = [os.dup2(file, STAGED_FILES + place, inheritable=False) for place, file in enumerate(files)]
    for place, file in enumerate(high):
        os.dup2(file, place, inheritable=False)
        os.close(file)


def serve(plan: dict[str, Any], control: int) -> None:
    """Take on the layers, say which, and run programs until the other end of this socket is gone."""
    server = ForkServer(plan, socket.socket(fileno=_out_of_the_way(control)))
    server.prepare()
    server.serve()


def main() -> None:
    plan = json.loads(sys.argv[1])
    serve(plan, plan["control"])
