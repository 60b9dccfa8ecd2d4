"""Start a command as a cluster would: an ordinary user without capabilities, to whom the runtime refuses namespaces and mounts.

`python pod.py [--without-landlock] COMMAND…`
"""

from __future__ import annotations

import errno
import os
import sys

from services.verifier.sandbox import privileges, seccomp
from services.verifier.sandbox.bpf import ALLOW, Argument, Rule, assemble, refuse
from services.verifier.sandbox.namespaces import CLONE
from services.verifier.sandbox.syscalls import MACHINE, NUMBERS

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


if __name__ == "__main__":
    command = [word for word in sys.argv[1:] if word != "--without-landlock"]
    privileges.leave_root(NOBODY)
    privileges.drop_capabilities()
    privileges.forbid_new_privileges()
    seccomp.install(assemble(MACHINE, rules("--without-landlock" not in sys.argv), ALLOW))
    os.execv(command[0], command)
