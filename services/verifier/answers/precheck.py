"""How large the numbers in an expression can get, judged from its text: sympy evaluates towers while it parses."""

from __future__ import annotations

import math
import re

MAX_DIGITS = 20_000
MAX_LENGTH = 2_000
MAX_DEPTH = 40
FLOAT_DIGITS = 300  # what a float can hold

_TOKEN = re.compile(r"\d+(?:\.\d+)?|\\[a-zA-Z]+|\*\*|[\^!{}()\[\]]|\S")
_OPENING, _CLOSING = frozenset("{(["), frozenset("})]")
_IGNORED = frozenset({r"\left", r"\right", r"\big", r"\Big"})
_COMBINATORIAL = frozenset({r"\binom", r"\dbinom", r"\tbinom"})


def too_large(expression: str) -> str | None:
    """Why the expression must not be evaluated; None when it may be."""
    if len(expression) > MAX_LENGTH:
        return f"the answer has more than {MAX_LENGTH} characters"
    try:
        digits = _Reader(expression).digits()
    except _TooDeepError:
        return f"the answer is nested deeper than {MAX_DEPTH} levels"
    return f"the answer needs numbers of more than {MAX_DIGITS} digits" if digits > MAX_DIGITS else None


class _TooDeepError(ValueError):
    pass


class _Reader:
    """Bounds the decimal digits of every value in an expression; letters count as nothing.

    A group is bounded by the sum over its parts, which covers their sum and their product alike.
    """

    def __init__(self, expression: str) -> None:
        self._tokens = [token for token in _TOKEN.findall(expression) if token not in _IGNORED]
        self._at = 0

    def digits(self) -> float:
        total = 0.0
        while self._at < len(self._tokens):
            total += self._group(0)
        return total

    def _group(self, depth: int) -> float:
        if depth > MAX_DEPTH:
            raise _TooDeepError
        total = 0.0
        while self._at < len(self._tokens):
            if self._tokens[self._at] in _CLOSING:
                self._at += 1
                return total
            total += self._power(depth)
        return total

    def _power(self, depth: int) -> float:
        if depth > MAX_DEPTH:
            raise _TooDeepError
        size = self._atom(depth)
        while self._at < len(self._tokens):
            operator = self._tokens[self._at]
            if operator in ("^", "**"):
                self._at += 1
                exponent = self._power(depth + 1)
                size = size * _value(exponent) if size else 0.0
            elif operator == "!":
                self._at += 1
                size = _value(size) * max(size, 1.0)
            else:
                return size
        return size

    def _atom(self, depth: int) -> float:
        if self._at == len(self._tokens):
            return 0.0
        token = self._tokens[self._at]
        self._at += 1
        if token in _OPENING:
            return self._group(depth + 1)
        if token in _COMBINATORIAL:
            return _value(self._atom(depth)) + self._atom(depth)
        return _digits_of(token) if token[0].isdecimal() else 0.0


def _digits_of(number: str) -> float:
    """log10 of the number, and for 0 and 1 that of 2: `(x + 1)^n` grows too. Long numbers by their length."""
    return math.log10(max(float(number), 2.0)) if len(number) < FLOAT_DIGITS else float(len(number))


def _value(digits: float) -> float:
    """The largest value with so many digits, as a float."""
    return 10.0**digits if digits < FLOAT_DIGITS else math.inf
