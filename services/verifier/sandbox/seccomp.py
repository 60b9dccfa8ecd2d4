"""Which system calls a program may make: what a computation needs, and nothing that reaches beyond its own process.

Absent, hence refused: sockets, new processes, other programs, tracing, namespaces, mounts, io_uring, userfaultfd, bpf,
keys, shared memory, memory files, new limits, and everything that the kernel has yet to invent.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import resource

from services.verifier.sandbox.bpf import RETURN, Argument, Rule, beginning, compiled, instruction, refuse
from services.verifier.sandbox.syscalls import MACHINE, PR_GET_NAME, PR_SET_NAME, numbers_of, syscall

SECCOMP_SET_MODE_FILTER = 1
CLONE_THREAD = 0x00010000
PR_SET_VMA = 0x53564D41  # newer C libraries name their memory
IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5451)  # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX
FILE_COMMANDS = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    1030,
    1032,
    1034,
)  # F_DUPFD to F_SETLKW, F_DUPFD_CLOEXEC, F_GETPIPE_SZ, F_GET_SEALS
SIGNALS_TO_ITSELF = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15)  # the catchable ones

ALLOWED = """
read write close fstat newfstatat stat lstat statx lseek mmap mprotect munmap brk mremap madvise mincore msync
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack
pread64 pwrite64 readv writev pipe pipe2 dup dup2 dup3 poll ppoll select pselect6 pause
open openat access faccessat faccessat2 readlink readlinkat getdents getdents64 statfs fstatfs getcwd chdir fchdir umask
fadvise64 getpid gettid getppid getuid geteuid getgid getegid getresuid getresgid getgroups getpgid getpgrp getsid uname
futex set_robust_list get_robust_list set_tid_address rseq membarrier sched_yield sched_getaffinity sched_getparam
sched_getscheduler sched_get_priority_max sched_get_priority_min getcpu
clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times getrusage getitimer setitimer alarm sysinfo
getrandom getrlimit arch_prctl exit exit_group restart_syscall close_range
""".split()  # noqa: SIM905


def fixed_rules(numbers: dict[str, int]) -> list[Rule]:
    """The part of the allow-list that is the same for every process."""
    return [
        *(Rule(numbers[name]) for name in ALLOWED if name in numbers),
        # Threads are its own; a new process would not be.
        Rule(numbers["clone"], ((Argument(0, has_bits=CLONE_THREAD),),)),
        # Its flags lie in memory, where a filter cannot look. The C library then falls back to clone.
        Rule(numbers["clone3"], answer=refuse(errno.ENOSYS)),
        Rule(numbers["prctl"], ((Argument(0, equals=(PR_SET_NAME, PR_GET_NAME, PR_SET_VMA)),),)),
        # Not F_SETOWN and its kin: they make the kernel send signals to others.
        Rule(numbers["fcntl"], ((Argument(1, equals=FILE_COMMANDS),),)),
        Rule(numbers["ioctl"], ((Argument(1, equals=IOCTLS),),), refuse(errno.ENOTTY)),
    ]


def own_rules(pid: int, numbers: dict[str, int]) -> list[Rule]:
    """The part for a process that knows itself under this process id."""
    itself = Argument(0, equals=(pid,))
    own_limits = Argument(0, equals=(0, pid))
    return [
        # A death by SIGKILL must mean that somebody else did it, so it may not even send that to itself.
        Rule(numbers["kill"], ((itself, Argument(1, equals=SIGNALS_TO_ITSELF)),)),
        Rule(numbers["tgkill"], ((itself, Argument(2, equals=SIGNALS_TO_ITSELF)),)),
        # Reading limits, and the size of the stack. A CPU limit of its own making would look like a death by our hand.
        Rule(
            numbers["prlimit64"],
            ((own_limits, Argument(2, equals=(0,))), (own_limits, Argument(1, equals=(resource.RLIMIT_STACK,)))),
        ),
    ]


def allow_list(machine: str, pid: int) -> bytes:
    """The filter of a process that knows itself under this process id."""
    return (
        _fixed_part(machine) + compiled(own_rules(pid, numbers_of(machine))) + instruction(RETURN, refuse(errno.EPERM))
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(filter_: bytes) -> None:
    """Put a filter on this process for good; no_new_privs must be set. Raises OSError."""
    program = _Program(len(filter_) // 8, filter_)
    syscall("seccomp", SECCOMP_SET_MODE_FILTER, 0, ctypes.byref(program))


def warm_up() -> bytes:
    """Compile what is the same for every process, so that each finds it done."""
    return _fixed_part(MACHINE)


@functools.cache
def _fixed_part(machine: str) -> bytes:
    return beginning(machine) + compiled(fixed_rules(numbers_of(machine)))


def restrict(pid: int) -> None:
    """Leave this process the allow-list. Raises OSError."""
    install(allow_list(MACHINE, pid))
