"""The trusted side: hands programs to a fork server, drains what they write, and stops them at their limits."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from potstill.contracts.verification import Limits
from services.verifier.sandbox.fork_server import MAX_MESSAGE, STOP
from services.verifier.sandbox.gvisor import END_SECONDS, LAYER
from services.verifier.settings import GvisorOptions

SETTLE_SECONDS = 30.0  # for what is our part: starting a process, taking on layers, ending a process
PATIENCE = 3.0  # a program that others keep from running gets up to so many times its wall time
STDERR_BYTES = 4096
CHUNK = 1 << 16
ROOT = Path(__file__).parents[3]
BOOT = (
    "import sys; sys.path.insert(0, sys.argv[2]); from services.verifier.sandbox.MODULE import main; "
    "sys.path[:] = [p for p in sys.path if p != sys.argv[2]] + sys.argv[3:]; main()"
)
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",  # a program's order of sets, and so its answer, does not change from run to run
    "MALLOC_ARENA_MAX": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")


class SandboxFailedError(Exception):
    """The sandbox, not the program, did not do its part. Says nothing about the program."""


class Ready(msgspec.Struct, frozen=True):
    layers: tuple[str, ...]
    missing: dict[str, str]  # a layer, and why it is not in force


class Ended(msgspec.Struct, frozen=True):
    """What a fork server says of a program's end."""

    status: int  # exit code, or minus the signal
    cpu_seconds: float
    out_of_time: bool
    peak_bytes: int
    left_over: int


@dataclass(frozen=True)
class Outcome:
    ended: Ended
    wall_seconds: float
    waited_seconds: float  # of them, ready to run while others ran
    stopped: str  # "wall" or "output" when we stopped it
    stdout: bytes
    stderr: bytes
    report: bytes


@dataclass(frozen=True)
class Order:
    """One program to run."""

    job: dict[str, Any]
    limits: Limits
    stdin: bytes = b""
    output_bytes: int = 0
    more_files: tuple[int, ...] = ()


class Sandbox:
    """A fork server and what it needs. One program at a time."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, ready: Ready, gvisor: GvisorOptions | None
    ) -> None:
        self._process, self._control, self._gvisor = process, control, gvisor
        self.layers, self.missing = ready.layers, ready.missing
        if gvisor is not None:
            self.layers = (LAYER, *self.layers)

    @classmethod
    def start(cls, user_id: int, gvisor: GvisorOptions | None = None) -> Self:
        """Raises SandboxFailedError."""
        if gvisor is not None and shutil.which(gvisor.runsc) is None:
            raise SandboxFailedError(
                f"there is no program {gvisor.runsc}: install gVisor, or set POTSTILL_SANDBOX_RUNSC"
            )
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        plan = {
            "control": theirs.fileno(),
            "user_id": user_id,
            "readable": readable_paths(),
            "devices": DEVICES,
        }
        if gvisor is not None:
            plan["runsc"] = {"program": gvisor.runsc, "platform": gvisor.platform}
        packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        try:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-S",
                    "-s",
                    "-B",
                    "-P",
                    "-X",
                    "utf8",
                    "-c",
                    BOOT.replace("MODULE", "fork_server" if gvisor is None else "gvisor"),
                    json.dumps(plan),
                    str(ROOT),
                    *packages,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=ENVIRONMENT,
                cwd="/",
            )
        except OSError as error:
            raise SandboxFailedError(f"its fork server does not start: {error}") from error
        theirs.close()
        ours.settimeout(SETTLE_SECONDS)
        try:
            ready = msgspec.json.decode(ours.recv(MAX_MESSAGE), type=Ready)
        except (OSError, msgspec.MsgspecError) as error:
            ours.close()
            code = _end(process, gvisor)
            what = "its fork server" if gvisor is None else f"gVisor, as {gvisor.runsc},"
            raise SandboxFailedError(f"{what} ended with code {code}, or said nothing") from error
        return cls(process, ours, ready, gvisor)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End it, and whatever runs in it."""
        self._control.close()
        _end(self._process, self._gvisor)

    def send(self, order: Order, files: Sequence[int]) -> None:
        message = {"memory_bytes": order.limits.memory_bytes, "cpu_seconds": order.limits.cpu_seconds}
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], files)
        except OSError as error:
            raise SandboxFailedError(f"its fork server is gone: {error}") from error

    def stop(self) -> None:
        with contextlib.suppress(OSError):  # it is gone: then so is the program
            self._control.send(STOP)

    def ended(self) -> Ended:
        try:
            message = self._control.recv(MAX_MESSAGE)
        except OSError as error:
            raise SandboxFailedError(f"its fork server is gone: {error}") from error
        if not message:
            raise SandboxFailedError("its fork server has died")
        return msgspec.json.decode(message, type=Ended)

    def fileno(self) -> int:
        return self._control.fileno()

    def waited_seconds(self) -> float:
        """How long the program that runs now waited while others ran. 0 where the kernel does not tell."""
        if self._gvisor is not None:
            return 0.0
        for child in _descendants(self._process.pid):
            with contextlib.suppress(OSError, ValueError, IndexError):
                delays = [int(path.read_text().split()[1]) for path in Path(f"/proc/{child}/task").glob("*/schedstat")]
                return max(delays) / 1e9
        return 0.0


def _end(process: subprocess.Popen[bytes], gvisor: GvisorOptions | None) -> int:
    """End what stands at the other end of a control socket that is closed. Returns its exit code."""
    if gvisor is not None:  # it has more to tidy up, and then ends by itself
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(2 * END_SECONDS)
    process.kill()
    return process.wait()


def readable_paths() -> list[str]:
    """What a program may read: the interpreter's library, installed packages and system libraries."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = [sysconfig.get_path(name) for name in names] + [f"{sys.base_prefix}/lib", *LIBRARIES]
    outermost = [path for path in paths if not any(path != other and path.startswith(f"{other}/") for other in paths)]
    return list(dict.fromkeys(outermost))


def _descendants(pid: int) -> list[int]:
    """The deepest processes below this one."""
    with contextlib.suppress(OSError):
        text = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
        return [deepest for child in text.split() for deepest in _descendants(int(child)) or [int(child)]]
    return []


@dataclass
class _Run:
    """A program that runs, and what it has written so far."""

    sandbox: Sandbox
    order: Order
    streams: dict[int, str] = field(default_factory=dict)  # open file to "stdout", "stderr", "report", "started"
    written: dict[str, bytearray] = field(
        default_factory=lambda: {n: bytearray() for n in ("stdout", "stderr", "report")}
    )
    began: float = 0.0
    wall_seconds: float = 0.0
    waited: float = 0.0
    allowed_seconds: float = SETTLE_SECONDS
    stopped: str = ""
    ended: Ended | None = None

    def start(self) -> None:
        stdin = _file_of(self.order.stdin)
        job = _file_of(json.dumps(self.order.job).encode())
        pipes = {name: os.pipe() for name in ("stdout", "stderr", "report", "started")}
        out, err, report, started = (pipes[name][1] for name in ("stdout", "stderr", "report", "started"))
        try:
            self.sandbox.send(self.order, (stdin, out, err, report, job, started, *self.order.more_files))
        finally:
            for file in (stdin, job, out, err, report, started, *self.order.more_files):
                os.close(file)
            self.streams = {pipe[0]: name for name, pipe in pipes.items()}
            self.began = time.perf_counter()
        for file in self.streams:
            os.set_blocking(file, False)

    def read(self, file: int) -> bool:
        """Take in what is there. False at the end of the stream."""
        name = self.streams[file]
        try:
            data = os.read(file, CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        if name == "started":
            self.written["started"] = bytearray(data)
            if self.ended is None:
                self.began = time.perf_counter()
                self.allowed_seconds = self.order.limits.wall_seconds
            return True
        kept = self.written[name]
        if name == "stderr":
            kept += data
            del kept[:-STDERR_BYTES]
        elif len(kept) <= self.order.output_bytes:
            kept += data
            if len(kept) > self.order.output_bytes:
                self.stop("output")
        return True

    def stop(self, why: str) -> None:
        self.stopped = self.stopped or why
        self.allowed_seconds += SETTLE_SECONDS
        self.sandbox.stop()

    def check_time(self) -> None:
        """Stop it when its time is over. Raises SandboxFailedError when it did not even begin, or does not stop."""
        elapsed = time.perf_counter() - self.began
        if elapsed < self.allowed_seconds:
            return
        if "started" not in self.written or self.stopped:
            raise SandboxFailedError("a program could not be started or stopped in time")
        self.waited = self.sandbox.waited_seconds()
        fair = self.order.limits.wall_seconds + self.waited
        if elapsed < min(fair, PATIENCE * self.order.limits.wall_seconds):
            self.allowed_seconds = min(fair, PATIENCE * self.order.limits.wall_seconds)
        else:
            self.stop("wall")

    def finish(self) -> Outcome:
        """Raises SandboxFailedError when the program was never let loose."""
        assert self.ended is not None
        if "started" not in self.written:
            raise SandboxFailedError("the layers could not be put on a program")
        out, err, report = (bytes(self.written[name]) for name in ("stdout", "stderr", "report"))
        return Outcome(self.ended, self.wall_seconds, self.waited, self.stopped, out, err, report)

    def close(self) -> None:
        for file in self.streams:
            os.close(file)


def run(*orders: tuple[Sandbox, Order]) -> list[Outcome]:
    """Run programs side by side, each in its sandbox, until all have ended. Raises SandboxFailedError."""
    runs = [_Run(sandbox, order) for sandbox, order in orders]
    try:
        for each in runs:
            each.start()
        _drive(runs)
        return [each.finish() for each in runs]
    finally:
        for each in runs:
            each.close()


def _drive(runs: list[_Run]) -> None:
    poller = select.poll()
    owners: dict[int, _Run] = {}
    for each in runs:
        for file in (each.sandbox.fileno(), *each.streams):
            owners[file] = each
            poller.register(file, select.POLLIN)
    while any(each.ended is None for each in runs):
        for file, _event in poller.poll(_patience(runs)):
            each = owners[file]
            if file == each.sandbox.fileno():
                each.ended = each.sandbox.ended()
                each.wall_seconds = time.perf_counter() - each.began
                poller.unregister(file)
            elif not each.read(file):
                poller.unregister(file)
        for each in runs:
            if each.ended is None:
                each.check_time()
    for each in runs:
        for file in each.streams:
            _drain(each, file)


def _drain(each: _Run, file: int) -> None:
    before = -1
    while each.read(file) and before != (before := sum(map(len, each.written.values()))):
        pass


def _patience(runs: list[_Run]) -> float:
    """Milliseconds until the first deadline."""
    now = time.perf_counter()
    return max(0.0, min(each.began + each.allowed_seconds - now for each in runs if each.ended is None)) * 1000 + 1


def _file_of(data: bytes) -> int:
    """A file in memory that can only be read, open at its beginning."""
    written = os.memfd_create("input", os.MFD_CLOEXEC)
    try:
        for part in _parts(data):
            os.write(written, part)
        return os.open(f"/proc/self/fd/{written}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(written)


def _parts(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(data), 1 << 20):
        yield view[start : start + (1 << 20)]
