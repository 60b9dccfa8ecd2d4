"""Landlock: which files a program may open (linux/landlock.h). It handles the rights that this kernel knows."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from services.verifier.sandbox.syscalls import syscall

CREATE_VERSION = 1
RULE_PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
READ_ONLY = READ_FILE | READ_DIR
DEVICE = READ_FILE | WRITE_FILE
FILE_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many of the rights each version handles
NETWORK_RIGHTS = 0b11  # bind and connect TCP, from version 4
SCOPES = 0b11  # abstract sockets and signals, from version 6


def version() -> int:
    """The kernel's Landlock version; 0 when it has none, or it is switched off."""
    try:
        return syscall("landlock_create_ruleset", None, 0, CREATE_VERSION)
    except OSError:
        return 0


def create_ruleset(readable: Iterable[Path], devices: Iterable[Path]) -> int:
    """A file descriptor: everything is refused except reading below `readable`, and reading and writing `devices`.

    Raises OSError.
    """
    known = version()
    if not known:
        raise OSError("this kernel has no Landlock, or it is switched off")
    files = (1 << FILE_RIGHTS_BY_ABI[min(known, max(FILE_RIGHTS_BY_ABI))]) - 1
    attributes = struct.pack("<QQQ", files, NETWORK_RIGHTS if known >= 4 else 0, SCOPES if known >= 6 else 0)
    size = 8 if known < 4 else 16 if known < 6 else 24
    ruleset = syscall("landlock_create_ruleset", ctypes.c_char_p(attributes), size, 0)
    for path in readable:
        with contextlib.suppress(FileNotFoundError):
            _allow(ruleset, path, READ_ONLY if path.is_dir() else READ_FILE)
    for path in devices:
        with contextlib.suppress(FileNotFoundError):
            _allow(ruleset, path, DEVICE)
    return ruleset


def _allow(ruleset: int, path: Path, rights: int) -> None:
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("<Qi", rights, parent)
        syscall("landlock_add_rule", ruleset, RULE_PATH_BENEATH, ctypes.c_char_p(rule), 0)
    finally:
        os.close(parent)


def restrict(ruleset: int) -> None:
    """Bind this process to a domain of its own, for good; no_new_privs must be set. Raises OSError."""
    syscall("landlock_restrict_self", ruleset, 0)
