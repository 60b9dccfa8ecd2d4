"""Start a command as a cluster would: an ordinary user without capabilities, refused namespaces and mounts.

`python pod.py [--without-landlock] COMMAND…`
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
from pathlib import Path

from services.verifier.sandbox import privileges, seccomp
from services.verifier.sandbox.bpf import ALLOW, Argument, Rule, assemble, refuse
from services.verifier.sandbox.namespaces import CLONE, MS_BIND, MS_PRIVATE, MS_REC, mount
from services.verifier.sandbox.syscalls import MACHINE, NUMBERS, syscall

NOBODY = 65534


def rules(landlock: bool) -> list[Rule]:
    namespaces = sum(CLONE.values())
    refused = [Rule(NUMBERS[name], answer=refuse(errno.EPERM)) for name in ("unshare", "setns", "mount", "pivot_root")]
    absent = [name for name in NUMBERS if name.startswith("landlock_") and not landlock]
    return [
        *refused,
        Rule(NUMBERS["clone"], ((Argument(0, has_bits=namespaces),),), otherwise=ALLOW, answer=refuse(errno.EPERM)),
        Rule(NUMBERS["clone3"], answer=refuse(errno.ENOSYS)),
        *(Rule(NUMBERS[name], answer=refuse(errno.ENOSYS)) for name in absent),
    ]


def open_the_way(place: Path) -> None:
    """Let others reach an interpreter below a folder that is root's alone, in a view of the files that only we have."""
    closed = next((folder for folder in reversed(place.parents) if not folder.stat().st_mode & stat.S_IXOTH), None)
    if closed is None or os.geteuid() != 0:
        return
    syscall("unshare", CLONE["mount"])
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    aside = Path(tempfile.mkdtemp())
    mount(str(place), str(aside), None, MS_BIND | MS_REC)
    mount("tmpfs", str(closed), "tmpfs", 0, "mode=755")
    place.mkdir(parents=True)
    mount(str(aside), str(place), None, MS_BIND | MS_REC)


if __name__ == "__main__":
    command = [word for word in sys.argv[1:] if word != "--without-landlock"]
    open_the_way(Path(sys.base_prefix))
    privileges.leave_root(NOBODY)
    privileges.drop_capabilities()
    privileges.forbid_new_privileges()
    seccomp.install(assemble(MACHINE, rules("--without-landlock" not in sys.argv), ALLOW))
    os.execv(command[0], command)
