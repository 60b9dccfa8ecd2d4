"""Namespaces: a view of the machine with nothing in it but the interpreter, where the host permits it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterable
from pathlib import Path

from services.verifier.sandbox.syscalls import syscall

CLONE = {
    "mount": 0x00020000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "network": 0x40000000,
}
LINKS = {"mount": "mnt", "ipc": "ipc", "user": "user", "pid": "pid_for_children", "network": "net"}
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MS_REC, MS_PRIVATE, MS_RELATIME = 16384, 1 << 18, 1 << 21
ST_RELATIME = 4096
KEPT_FLAGS = (
    1 | 2 | 4 | 8 | 1024 | 2048
)  # read-only, nosuid, nodev, noexec, noatime, nodiratime: the same in both tables
MNT_DETACH = 2
STAGE = "/tmp"  # noqa: S108  # any folder that exists: a file system is mounted over it, and seen by nobody else


def enter() -> tuple[str, ...]:
    """Move to new namespaces, that for processes from the next fork on. Returns which; raises OSError without any."""
    user, group = os.geteuid(), os.getegid()
    before = {name: _identity(name) for name in CLONE}
    wanted = sum(flag for name, flag in CLONE.items() if name != "user")
    try:
        syscall("unshare", wanted)
    except PermissionError:
        syscall("unshare", wanted | CLONE["user"])
        with contextlib.suppress(FileNotFoundError):
            Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    # The one for processes has no identity before somebody lives in it; the kernel would have refused the whole call.
    changed = {name for name in CLONE if name == "pid" or _identity(name) != before[name]}
    if socket.if_nameindex() not in ([], [(1, "lo")]):
        changed.discard("network")
    return tuple(sorted(changed))


def enter_user() -> bool:
    """A user namespace alone, in which this user's processes are counted by themselves. Raises OSError."""
    syscall("unshare", CLONE["user"])
    return True


def _identity(name: str) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/self/ns/{LINKS[name]}").readlink())
    return ""


def enter_root(readable: Iterable[Path], devices: Iterable[Path]) -> None:
    """Make a read-only root that holds nothing but these. Needs a mount namespace of its own. Raises OSError."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,nr_inodes=1k,mode=755")
    old = f"{STAGE}/old"
    Path(old).mkdir()
    syscall("pivot_root", _text(STAGE), _text(old))
    os.chdir("/")
    for path in readable:
        _show(path, MS_NODEV)
    for path in devices:
        _show(path, 0)
    syscall("umount2", _text("/old"), MNT_DETACH)
    Path("/old").rmdir()
    mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def hide(folder: str) -> None:
    """Lay an empty folder that nobody may enter over this one. Raises OSError."""
    mount("none", folder, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4k,mode=0")


def _show(path: Path, flags: int) -> None:
    source, target = Path("/old", *path.parts[1:]), path
    if source.is_symlink():
        if not target.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source.readlink())
        return
    if not source.exists():
        return
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(str(source), str(target), None, MS_BIND | MS_REC)
    given = os.statvfs(target).f_flag
    kept = given & KEPT_FLAGS | (MS_RELATIME if given & ST_RELATIME else 0)
    mount("none", str(target), None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | flags | kept)


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """The system call. Raises OSError."""
    syscall("mount", _text(source), _text(target), _text(kind), ctypes.c_ulong(flags), _text(options or None))


def _text(value: str | None) -> ctypes.c_char_p:
    return ctypes.c_char_p(None if value is None else value.encode())
