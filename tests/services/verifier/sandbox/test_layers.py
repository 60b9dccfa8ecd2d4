"""The parts of the sandbox by themselves."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from services.verifier.sandbox import bpf, seccomp, values
from services.verifier.sandbox.probing import BPF, BREAKOUT
from services.verifier.sandbox.syscalls import NUMBERS, numbers_of

PID = 4711
EPERM = bpf.refuse(1)
HEADERS = {
    "x86_64": [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")],
    "aarch64": [Path("/usr/include/asm-generic/unistd.h")],
}


def answer(filter_: bytes, machine: str, number: int, *arguments: int) -> int:
    """What the kernel would do: seccomp's part of classic BPF, interpreted."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number, bpf.AUDIT_ARCHITECTURE[machine], 0, *padded)
    at = accumulator = 0
    while True:
        code, if_true, if_false, operand = struct.unpack_from("<HBBI", filter_, 8 * at)
        at += 1
        match code:
            case bpf.LOAD:
                accumulator = struct.unpack_from("<I", data, operand)[0]
            case bpf.RETURN:
                return int(operand)
            case bpf.EQUAL:
                at += if_true if accumulator == operand else if_false
            case bpf.ANY_BIT:
                at += if_true if accumulator & operand else if_false
            case bpf.AT_LEAST:
                at += if_true if accumulator >= operand else if_false
            case _:
                raise AssertionError(code)


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def asked(machine: str, name: str, *arguments: int) -> int:
    return answer(seccomp.allow_list(machine, PID), machine, numbers_of(machine)[name], *arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "allowed"),
    [
        ("read", (0,), True),
        ("futex", (), True),
        ("socket", (2, 1), False),
        ("execve", (), False),
        ("ptrace", (), False),
        ("memfd_create", (), False),
        ("unshare", (0,), False),
        ("clone", (0x3D0F00,), True),
        ("clone", (0x11,), False),
        ("clone", (0x10000011,), False),
        ("kill", (PID, 15), True),
        ("kill", (PID, 9), False),
        ("kill", (PID, 19), False),
        ("kill", (1, 0), False),
        ("kill", (2**32 + PID, 15), False),
        ("kill", (2**64 - 1, 15), False),
        ("tgkill", (PID, PID, 6), True),
        ("tgkill", (1, 1, 6), False),
        ("prctl", (15,), True),
        ("prctl", (1, 0), False),
        ("fcntl", (0, 3), True),
        ("fcntl", (0, 8, 1), False),
        ("prlimit64", (0, 7, 0, 8), True),
        ("prlimit64", (PID, 3, 8, 0), True),
        ("prlimit64", (0, 0, 8, 0), False),
        ("prlimit64", (1, 7, 0, 8), False),
        ("prlimit64", (0, 7, 2**32), False),
    ],
)
def test_the_filter_allows_what_is_harmless(machine: str, name: str, arguments: tuple[int, ...], allowed: bool) -> None:
    assert (asked(machine, name, *arguments) == bpf.ALLOW) == allowed


def test_clone3_is_absent_so_that_the_library_falls_back(machine: str) -> None:
    assert asked(machine, "clone3") == bpf.refuse(38)


def test_calls_of_another_architecture_end_the_process() -> None:
    filter_ = seccomp.allow_list("x86_64", PID)
    assert answer(filter_, "aarch64", 0) == bpf.KILL_PROCESS
    assert answer(filter_, "x86_64", bpf.X32_BIT) == bpf.KILL_PROCESS


def test_what_the_filter_does_not_know_is_refused(machine: str) -> None:
    filter_ = seccomp.allow_list(machine, PID)
    known = {numbers_of(machine)[name] for name in seccomp.ALLOWED if name in numbers_of(machine)}
    special = {
        numbers_of(machine)[n] for n in ("clone", "clone3", "kill", "tgkill", "prctl", "fcntl", "ioctl", "prlimit64")
    }
    for number in set(range(600)) - known - special:
        assert answer(filter_, machine, number) == EPERM
    assert len(filter_) // 8 < 4096


def test_the_numbers_of_system_calls_are_those_of_the_kernel(machine: str) -> None:
    header = next((path for path in HEADERS[machine] if path.exists()), None)
    if header is None:
        pytest.skip("no kernel headers for it here")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    kernel = {name: int(number) for name, number in found}
    renamed = {"newfstatat": "fstatat"} if machine == "aarch64" else {}
    for name, number in numbers_of(machine).items():
        assert kernel[renamed.get(name, name)] == number, name


def test_the_attempts_to_break_out_succeed_where_there_is_no_sandbox() -> None:
    with tempfile.NamedTemporaryFile() as canary:
        target = {
            "service": os.getpid(),
            "canary": canary.name,
            "memory_bytes": 2**20,
            "unshare": NUMBERS["unshare"],
            "ptrace": NUMBERS["ptrace"],
            "bpf": next(iter(BPF.values())),
        }
        source = BREAKOUT.read_text().replace('os.execv("/bin/true", ["true"])', "None")
        with tempfile.TemporaryDirectory() as folder:
            ended = subprocess.run(
                [sys.executable, "-c", source],
                input=json.dumps(target),
                capture_output=True,
                text=True,
                cwd=folder,
                check=True,
            )
    for left in (Path("/tmp/breakout"), Path("/dev/shm/breakout")):
        left.unlink(missing_ok=True)
    Path("/tmp/breakout.d").rmdir() if Path("/tmp/breakout.d").exists() else None
    succeeded = set(ended.stdout.splitlines())
    assert {"read a file of the service", "list the root folder", "write a file in /tmp", "fork"} <= succeeded
    assert {"open a TCP socket", "open a UDP socket", "make a memory file", "take more memory"} <= succeeded
    assert {"signal the service", "signal the parent", "read the service's environment"} <= succeeded


DATA: list[Any] = [
    None,
    True,
    0,
    2**53,
    -(10**4000),
    0.1,
    -0.0,
    "",
    "\ud800",
    "\x00",
    b"\xff",
    bytearray(b"a"),
    [],
    (),
    {},
    {1: [2, (3, {4}, frozenset({5}))], "a": {None: 1j}, (1, 2): b""},
    {"int": "0x1"},
    [[[]]] * 3,
]


@pytest.mark.parametrize("value", DATA, ids=range(len(DATA)))
def test_data_survives_the_way_out(value: Any) -> None:
    returned = values.decode(json.loads(json.dumps(values.encode(value))))
    assert (returned, type(returned)) == (value, type(value))
    assert str(returned) == str(value) if value == 0.0 else True


NO_DATA: list[Any] = [
    {},
    {"a": 1, "b": 2},
    {"int": 5},
    {"int": "zz"},
    {"float": "1"},
    {"tuple": 5},
    {"set": [[1]]},
    {"dict": [[1]]},
    {"dict": [[[], 1]]},
    {"complex": ["a"]},
    {"bytes": "zz"},
    {"bytes": []},
    {"__class__": []},
    {"object": []},
]


@pytest.mark.parametrize("document", NO_DATA, ids=range(len(NO_DATA)))
def test_what_is_no_data_is_refused(document: Any) -> None:
    with pytest.raises(values.NotDataError):
        values.decode(document)


def test_nesting_is_bounded_on_both_sides() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(values.NotDataError):
        values.encode(deep)
    with pytest.raises(values.NotDataError):
        values.decode(deep)
