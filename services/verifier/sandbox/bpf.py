"""A small assembler for seccomp filters: an allow-list of system calls, some with conditions on an argument.

Instructions: linux/filter.h; the data they look at: `struct seccomp_data` in linux/seccomp.h.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass

LOAD, EQUAL, ANY_BIT, AT_LEAST, RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000
NUMBER_OFFSET, ARCHITECTURE_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16
AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_BIT = 0x40000000  # the x86-64 kernel's second table of system calls
_INSTRUCTION = struct.Struct("<HBBI")


def refuse(code: int) -> int:
    """The filter's answer that makes a call fail with this errno."""
    return 0x00050000 | code


@dataclass(frozen=True)
class Argument:
    """A condition on a system call's argument, of which both 32-bit halves are looked at."""

    index: int
    equals: tuple[int, ...] = ()  # it is one of these
    has_bits: int = 0  # it has one of these bits set; used instead of `equals`


@dataclass(frozen=True)
class Rule:
    number: int
    cases: tuple[tuple[Argument, ...], ...] = ((),)  # it is answered when all conditions of one of these hold
    otherwise: int = refuse(errno.EPERM)  # the answer when none does
    answer: int = ALLOW


def instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return _INSTRUCTION.pack(code, if_true, if_false, operand)


def assemble(machine: str, rules: Sequence[Rule], default: int) -> bytes:
    """The filter. Calls of another architecture, and x32's, kill the process; what no rule names gets `default`."""
    return beginning(machine) + compiled(rules) + instruction(RETURN, default)


def beginning(machine: str) -> bytes:
    """Refuses other architectures and loads the number of the system call, for rules to follow."""
    lines = [
        instruction(LOAD, ARCHITECTURE_OFFSET),
        instruction(EQUAL, AUDIT_ARCHITECTURE[machine], 1, 0),
        instruction(RETURN, KILL_PROCESS),
        instruction(LOAD, NUMBER_OFFSET),
    ]
    if machine == "x86_64":
        lines += [instruction(AT_LEAST, X32_BIT, 0, 1), instruction(RETURN, KILL_PROCESS)]
    return b"".join(lines)


def compiled(rules: Sequence[Rule]) -> bytes:
    """Rules, each of which falls through to what follows when its number is another."""
    lines = []
    for rule in rules:
        body = [line for case in rule.cases for line in _case(case, rule.answer)]
        if any(rule.cases):
            body.append(instruction(RETURN, rule.otherwise))
        lines += [instruction(EQUAL, rule.number, 0, len(body)), *body]
    return b"".join(lines)


def _case(conditions: tuple[Argument, ...], answer: int) -> list[bytes]:
    """Return `answer` when all hold, else fall through to what follows."""
    lines = [instruction(RETURN, answer)]
    for condition in reversed(conditions):
        lines = _test(condition, len(lines)) + lines
    return lines


def _test(condition: Argument, skip: int) -> list[bytes]:
    """Go on when it holds, else past the next `skip` lines."""
    low = ARGUMENTS_OFFSET + 8 * condition.index
    if condition.has_bits:
        return [instruction(LOAD, low), instruction(ANY_BIT, condition.has_bits, 0, skip)]
    values = condition.equals
    last = len(values) - 1
    return [
        instruction(LOAD, low + 4),
        instruction(EQUAL, 0, 0, 1 + len(values) + skip),
        instruction(LOAD, low),
        *(instruction(EQUAL, value, last - place, 0 if place < last else skip) for place, value in enumerate(values)),
    ]
