"""Giving up what a process may do, for good."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct

from services.verifier.sandbox.syscalls import (
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_CLEAR_ALL,
    PR_CAPBSET_DROP,
    PR_GET_NO_NEW_PRIVS,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    prctl,
    syscall,
)

LAST_CAPABILITY = 63
CAPABILITY_VERSION_3 = 0x20080522
NO_CAPABILITIES = b"\0" * 24


def leave_root(user_id: int) -> None:
    """Become an ordinary user, when this process is root and may. Raises OSError when it may not."""
    if os.geteuid() == 0 and user_id:
        os.setgroups([])
        os.setresgid(user_id, user_id, user_id)
        os.setresuid(user_id, user_id, user_id)


def drop_capabilities() -> None:
    """Keep none, and get none back. Raises OSError."""
    for capability in range(LAST_CAPABILITY + 1):
        with contextlib.suppress(OSError):  # numbers past the kernel's last one, and having none to drop with
            prctl(PR_CAPBSET_DROP, capability)
    with contextlib.suppress(OSError):
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("<Ii", CAPABILITY_VERSION_3, 0)
    syscall("capset", ctypes.c_char_p(header), ctypes.c_char_p(NO_CAPABILITIES))


def forbid_new_privileges() -> bool:
    """No program that is started later can gain any. Returns whether the kernel confirms it. Raises OSError."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    return prctl(PR_GET_NO_NEW_PRIVS) == 1


def hide_memory() -> None:
    """Others of this user cannot read this process's memory or environment. Raises OSError."""
    prctl(PR_SET_DUMPABLE, 0)


def die_with_parent(parent: int) -> None:
    """Set after the user has changed, which clears it. Raises OSError."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call above
        os._exit(0)
