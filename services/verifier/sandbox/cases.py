"""The forms of a test of kind `code`, read from a request."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from potstill.contracts.verification import WIDE_INTEGER, VerifyItem, holds_wide_integer


class CaseError(ValueError):
    """A test that has none of the known forms; the text says what is wrong with it."""


Tolerance = Annotated[float, msgspec.Meta(ge=0)]


class StdinCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The program reads `stdin` and must print `stdout`."""

    stdin: str
    stdout: str
    tolerance: Tolerance = 0.0  # relative or absolute, for numbers


class CallCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The item's function, or method of `Solution`, is called and must return `expected`. Values are JSON."""

    arguments: list[Any]
    expected: Any
    tolerance: Tolerance = 0.0


class CodeCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Test code: assertions about the program's functions, or a `check(candidate)` for the item's function."""

    code: str
    prompt: str = ""  # what the program continues, if anything


Case = StdinCase | CallCase | CodeCase
_FORMS: dict[str, type[Case]] = {"stdin": StdinCase, "arguments": CallCase, "code": CodeCase}


@dataclass(frozen=True)
class Call:
    """A call whose result is compared outside, as Python compares."""

    function: str
    arguments: list[Any]
    expected: Any


def read_case(test: dict[str, Any], function: str | None) -> Case:
    """Raises CaseError."""
    form = next((form for key, form in _FORMS.items() if key in test), None)
    if form is None:
        raise CaseError("a test has stdin and stdout, or arguments and expected, or code")
    if holds_wide_integer(test):
        raise CaseError(WIDE_INTEGER)
    try:
        case = msgspec.convert(test, form)
    except msgspec.ValidationError as error:
        raise CaseError(str(error)) from error
    if isinstance(case, CallCase) and not function:
        raise CaseError("a test with arguments needs the item's `function`")
    return case


def problems(item: VerifyItem) -> list[tuple[str, str]]:
    """What is wrong with an item's tests: a field and a message each."""
    if not item.tests:
        return [("tests", "kind code runs tests, and there are none")]
    found = []
    for place, test in enumerate(item.tests):
        try:
            read_case(test, item.function)
        except CaseError as error:
            found.append((f"tests.{place}", str(error)))
    return found


def plain_assertion(code: str) -> Call | None:
    """The call and the value of `assert f(1, [2]) == 3`; None for anything that is not just that."""
    try:
        statements = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    match statements:
        case [
            ast.Assert(
                test=ast.Compare(
                    left=ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]),
                    ops=[ast.Eq()],
                    comparators=[expected],
                )
            )
        ]:
            try:
                return Call(function, [ast.literal_eval(each) for each in arguments], ast.literal_eval(expected))
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                return None
    return None
