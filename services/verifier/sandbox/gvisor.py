"""A fork server in gVisor. This process stands in its place, and passes on what crosses the border.

    worker ── socket, files ── this process ── frames on stdin, stdout ──┬─ inside.py ── socket, files ── fork server
                                                                         └────────────── gVisor ────────────────────

gVisor takes no files from outside but the three standard ones. So what the worker hands over is sent as frames, and
inside.py makes files of it again. Trusted: it holds the worker's ends. The worker talks to it as to a fork server.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from services.verifier.sandbox import limits
from services.verifier.sandbox.fork_server import FILES, MAX_MESSAGE, PR_SET_CHILD_SUBREAPER, children
from services.verifier.sandbox.fork_server import STOP as STOP_MESSAGE
from services.verifier.sandbox.frames import CHUNK, CONTROL, ORDER, STOP, STREAM, Outbox, frame, split, write_all
from services.verifier.sandbox.syscalls import prctl

LAYER = "gvisor"
END_SECONDS = 5.0
# What the fork server needs to become an ordinary user in namespaces of its own. All of it is gVisor's, not the host's.
CAPABILITIES = ["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_SYS_ADMIN", "CAP_KILL"]
HIDDEN_FOLDERS = ("/proc", "/sys")  # which gVisor mounts in any case, and has no Landlock to close
HIDDEN = 0o711  # a folder whose names cannot be listed


class Border:
    """Passes on frames and files until one side is gone."""

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._control = control
        self._inward = Outbox(process.stdin.fileno())
        self._outward = process.stdout.fileno()
        self._received = bytearray()
        self._sources: dict[int, int] = {}  # open file that the program reads as it comes, to its place
        self._sinks: dict[int, int] = {}  # place to open file

    def serve(self) -> None:
        while True:
            poller = select.poll()
            for file in (self._control.fileno(), self._outward, *self._sources):
                poller.register(file, select.POLLIN)
            if not self._inward.is_empty:
                poller.register(self._inward.file, select.POLLOUT)
            for file, _event in poller.poll():
                if file == self._control.fileno():
                    if not self._take_order():
                        return
                elif file == self._outward:
                    if not self._take_frames():
                        return
                elif file in self._sources:
                    self._pass_in(file)
                elif file == self._inward.file:
                    self._inward.write()

    def _take_order(self) -> bool:
        message, files, _flags, _address = socket.recv_fds(self._control, MAX_MESSAGE, FILES)
        if message == STOP_MESSAGE:
            self._inward.add(frame(STOP))
        elif message:
            self._inward.add(frame(ORDER, self._described(message, files)))
        return bool(message)

    def _described(self, message: bytes, files: list[int]) -> bytes:
        """The message, what each file is, and the content of those that are complete."""
        kinds: list[str | int] = []
        contents = b""
        for place, file in enumerate(files):
            if stat.S_ISREG(os.fstat(file).st_mode):
                content = _content(file)
                os.close(file)
                contents += content
                kinds.append(len(content))
            elif fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                self._sources[file] = place
                kinds.append("in")
            else:
                self._sinks[place] = file
                kinds.append("out")
        head = json.dumps({"given": json.loads(message), "files": kinds}).encode()
        return struct.pack("<I", len(head)) + head + contents

    def _take_frames(self) -> bool:
        data = os.read(self._outward, CHUNK)
        self._received += data
        for kind, payload in split(self._received):
            if kind == CONTROL:
                self._close_files()
                self._control.send(payload)
            elif (file := self._sinks.get(kind - STREAM)) is not None:
                self._pass_out(kind - STREAM, file, payload)
        return bool(data)

    def _pass_out(self, place: int, file: int, payload: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # nobody reads it any more
            write_all(file, payload)
        if not payload:
            os.close(self._sinks.pop(place))

    def _pass_in(self, file: int) -> None:
        data = os.read(file, CHUNK)
        self._inward.add(frame(STREAM + self._sources[file], data))
        if not data:
            del self._sources[file]
            os.close(file)

    def _close_files(self) -> None:
        """A run has ended."""
        for file in (*self._sources, *self._sinks.values()):
            os.close(file)
        self._sources, self._sinks = {}, {}


def _content(file: int) -> bytes:
    parts = []
    while part := os.read(file, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def main() -> None:
    """Run in the place of a fork server, with its arguments."""
    plan = json.loads(sys.argv[1])
    limits.lift()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.setsid()  # so that it can still tidy up when the worker's processes are killed together
    control = socket.socket(fileno=plan["control"])
    folder = Path(tempfile.mkdtemp(prefix="potstill-gvisor-"))
    try:
        _write_bundle(folder, plan, sys.argv[2], sys.argv[3:])
        process = _start(folder, plan["runsc"])
        try:
            Border(control, process).serve()
        finally:
            control.close()
            _end(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    flags = ["--network=none", "--ignore-cgroups", f"--root={folder / 'state'}"]
    if options["platform"]:
        flags.append(f"--platform={options['platform']}")
    if os.geteuid() != 0:
        flags.append("--rootless")
    return subprocess.Popen(
        [options["program"], *flags, "run", f"--bundle={folder}", folder.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """It ends with its standard input; what does not is killed, with all that it has started."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    while found := children():
        for child in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _write_bundle(folder: Path, plan: dict[str, Any], root: str, packages: list[str]) -> None:
    """What the OCI runtime specification calls a bundle: a root with nothing in it but what is read, and a config."""
    code = Path(root, "services", "verifier", "sandbox")
    interpreter = os.path.realpath(sys.executable)
    shown = [*plan["readable"], interpreter, str(code), *(str(path) for path in _packages_above(code, Path(root)))]
    rootfs = folder / "rootfs"
    rootfs.mkdir()
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {
            "destination": "/tmp",  # noqa: S108
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["ro", "mode=0"],
        },  # else one for everybody
        *(
            {"destination": path, "type": "bind", "source": path, "options": ["bind", "ro"]}
            for path in _places(rootfs, shown)
        ),
    ]
    for path in (rootfs, *(each for each in rootfs.rglob("*") if each.is_dir() and not each.is_symlink())):
        path.chmod(HIDDEN)
    boot = (
        "import sys; sys.path.insert(0, sys.argv[2]); from services.verifier.sandbox.inside import main; "
        "sys.path[:] = [p for p in sys.path if p != sys.argv[2]] + sys.argv[3:]; main()"
    )
    inner = {key: plan[key] for key in ("user_id", "readable", "devices")} | {"hidden": HIDDEN_FOLDERS}
    flags = ["-S", "-s", "-B", "-P", "-X", "utf8"]
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [interpreter, *flags, "-c", boot, json.dumps(inner), root, *packages],
            "env": [f"{name}={value}" for name, value in os.environ.items()],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), CAPABILITIES),
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "sandbox",
        "mounts": mounts,
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
    }
    (folder / "config.json").write_text(json.dumps(config))


def _packages_above(code: Path, root: Path) -> Iterable[Path]:
    return [folder / "__init__.py" for folder in code.parents if folder.is_relative_to(root) and folder != root]


def _places(rootfs: Path, paths: Iterable[str]) -> Iterator[str]:
    """Make a place in the root for each path that exists; a link becomes the same link, and needs no mount."""
    for path in dict.fromkeys(paths):
        place = rootfs / path.lstrip("/")
        if Path(path).is_symlink():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(Path(path).readlink())
            continue
        if not Path(path).exists() or place.exists():
            continue
        if Path(path).is_dir():
            place.mkdir(parents=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        yield path
