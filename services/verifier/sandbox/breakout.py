"""A program that tries to get out, run in the sandbox before it is trusted. Never imported: see probing.py.

Standard input: what to aim at. Standard output: the names of the attempts that succeeded.
"""

import ctypes
import json
import os
import socket
import sys

TARGET = json.load(sys.stdin)
SERVICE, CANARY = TARGET["service"], TARGET["canary"]
libc = ctypes.CDLL(None, use_errno=True)


def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def connect(kind, family=socket.AF_INET):
    socket.socket(family, kind)


def fork():
    if os.fork() == 0:
        os._exit(0)


def thread_outside():
    if os.path.exists(f"/proc/{SERVICE}/task"):
        os.listdir(f"/proc/{SERVICE}/task")
    else:
        raise OSError("hidden")


def open_files():
    """Files beyond the standard ones and the report's."""
    for file in (*range(5, 64), 101, 255, 1000):
        try:
            os.fstat(file)
        except OSError:
            continue
        return
    raise OSError("none")


def exceed_memory():
    try:
        bytearray(TARGET["memory_bytes"] + 2**26)
    except MemoryError as error:
        raise OSError("no memory") from error


def raise_limits():
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


ATTEMPTS = {
    "read a file of the service": lambda: open(CANARY).read(),
    "list the root folder": lambda: os.listdir("/"),
    "read the service's environment": lambda: open(f"/proc/{SERVICE}/environ", "rb").read(1),
    "read the service's memory": lambda: open(f"/proc/{SERVICE}/mem", "rb"),
    "read the parent's environment": lambda: open(f"/proc/{os.getppid()}/environ", "rb").read(1),
    "list the service's threads": thread_outside,
    "write a file in its folder": lambda: open("breakout", "w"),
    "write a file in /tmp": lambda: open("/tmp/breakout", "w"),
    "write a file in /dev/shm": lambda: open("/dev/shm/breakout", "w"),
    "make a folder": lambda: os.mkdir("/tmp/breakout.d"),
    "signal the service": lambda: os.kill(SERVICE, 0),
    "signal the parent": lambda: os.kill(os.getppid(), 0),
    "signal everybody": lambda: os.kill(-1, 0),
    "open a TCP socket": lambda: connect(socket.SOCK_STREAM),
    "open a UDP socket": lambda: connect(socket.SOCK_DGRAM),
    "open a Unix socket": lambda: connect(socket.SOCK_STREAM, socket.AF_UNIX),
    "resolve a name": lambda: socket.getaddrinfo("localhost.localdomain", 80, type=socket.SOCK_STREAM),
    "fork": fork,
    "start a program": lambda: os.execv("/bin/true", ["true"]),
    "become root": lambda: os.setuid(0),
    "make a user namespace": lambda: call(TARGET["unshare"], 0x10000000),
    "trace the parent": lambda: call(TARGET["ptrace"], 16, os.getppid(), 0, 0),
    "use io_uring": lambda: call(425, 1, 0),
    "load a kernel program": lambda: call(TARGET["bpf"], 0, 0, 0),
    "make a memory file": lambda: os.memfd_create("breakout"),
    "find an open file": open_files,
    "take more memory": exceed_memory,
    "raise a limit": raise_limits,
}
for name, attempt in ATTEMPTS.items():
    try:
        attempt()
    except OSError:
        continue
    except ValueError:  # how setrlimit reports that it may not
        continue
    print(name)
