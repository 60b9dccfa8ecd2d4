"""Whether what a program printed or returned is what was expected. Runs outside the sandbox, on text and plain data."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Any

NUMBER_CHARACTERS = 1000


def same_output(printed: str, expected: str, tolerance: float = 0.0) -> bool:
    """Line by line, without regard to space at their ends and empty lines at the end. Numbers are compared by value."""
    ours, theirs = _lines(printed), _lines(expected)
    return ours == theirs or (
        len(ours) == len(theirs)
        and all(a == b or _same_tokens(a, b, tolerance) for a, b in zip(ours, theirs, strict=True))
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_tokens(ours: str, theirs: str, tolerance: float) -> bool:
    a, b = ours.split(), theirs.split()
    return len(a) == len(b) and all(x == y or _same_number(x, y, tolerance) for x, y in zip(a, b, strict=True))


def _same_number(ours: str, theirs: str, tolerance: float) -> bool:
    if max(len(ours), len(theirs)) > NUMBER_CHARACTERS or "_" in ours or not ours.isascii():
        return False  # what Decimal takes for a number, and a reader of the expected output does not
    try:
        a, b = Decimal(ours), Decimal(theirs)
    except InvalidOperation:
        return False
    if not (a.is_finite() and b.is_finite()):
        return False
    return a == b or (tolerance > 0 and math.isclose(float(a), float(b), rel_tol=tolerance, abs_tol=tolerance))


def same_value(returned: Any, expected: Any, tolerance: float = 0.0, from_json: bool = True) -> bool:
    """As Python compares them. Where `expected` came as JSON, which has lists only, tuples count as lists.

    Both are plain data; keys of a JSON object are text, and an integer key may stand for its text.
    """
    if from_json and isinstance(returned, tuple):
        returned = list(returned)
    if isinstance(expected, float | int) and isinstance(returned, float | int):
        if returned == expected:
            return True
        return tolerance > 0 and _close(returned, expected, tolerance)
    if type(returned) is not type(expected):
        return False
    if isinstance(expected, list | tuple):
        return len(returned) == len(expected) and all(
            same_value(a, b, tolerance, from_json) for a, b in zip(returned, expected, strict=True)
        )
    if isinstance(expected, dict):
        ours = {str(key) if from_json and type(key) is int else key: value for key, value in returned.items()}
        return ours.keys() == expected.keys() and all(
            same_value(ours[key], value, tolerance, from_json) for key, value in expected.items()
        )
    return bool(returned == expected)


def _close(returned: float, expected: float, tolerance: float) -> bool:
    try:
        return math.isclose(returned, expected, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:
        return False
