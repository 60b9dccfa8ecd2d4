"""One text for all answers that are equal, for majority votes: 0.5, `1/2` and `\\frac12` are all `1/2`."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

from sympy import (
    Eq,
    Expr,
    FiniteSet,
    Float,
    Integer,
    Interval,
    MatrixBase,
    Rational,
    Tuple,
    Union,
    preorder_traversal,
)
from sympy.core.relational import Relational

from services.verifier.answers import precheck
from services.verifier.answers.comparison import PRECISION, exact, plain_number, point, rational_near
from services.verifier.answers.latex import Expression, UnreadableError, read_expression
from services.verifier.answers.numbers import PlainNumber, read_number
from services.verifier.answers.text import normalized

LENGTH = 120  # longer texts end in a digest
DIGITS = 30  # that an irrational value is written with
SHOWN_BITS = 400
_UNEVALUATED = ("Integral", "Sum", "Product", "Limit", "Derivative")  # evaluating these may never end


def canonical_answer(text: str) -> str:
    """The canonical text of an answer: of its value where it has one, else of its words. At most 140 characters."""
    number = read_number(text)
    if number is not None:
        return canonical_number(number)
    if precheck.too_large(text) is not None:
        return canonical_words(text)
    try:
        return _bounded(_canonical(read_expression(text)))
    except UnreadableError:
        return canonical_words(text)


def canonical_words(text: str) -> str:
    return _bounded(normalized(text))


def canonical_number(number: PlainNumber) -> str:
    """The exact fraction; 50% is `1/2`."""
    return _fraction(number.share.value)


def _fraction(value: Fraction) -> str:
    if value.numerator.bit_length() + value.denominator.bit_length() <= SHOWN_BITS:
        return str(value)
    digest = hashlib.sha256(f"{value.numerator:x}/{value.denominator:x}".encode()).hexdigest()[:16]
    return f"{'-' if value < 0 else ''}number of {value.numerator.bit_length()} bits #{digest}"


def _bounded(text: str) -> str:
    if len(text) <= LENGTH:
        return text
    return f"{text[:LENGTH]}… #{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _canonical(expression: Expression) -> str:
    if isinstance(expression, MatrixBase):
        rows = (", ".join(_canonical(entry) for entry in row) for row in expression.tolist())
        return "[" + ", ".join(f"[{row}]" for row in rows) + "]"
    if isinstance(expression, Eq) and expression.lhs.is_Symbol:
        return _canonical(expression.rhs)
    if isinstance(expression, FiniteSet):
        elements = sorted(map(_canonical, expression.args))
        return elements[0] if len(elements) == 1 else "{" + ", ".join(elements) + "}"
    if isinstance(expression, Tuple):
        return "(" + ", ".join(map(_canonical, expression.args)) + ")"
    if isinstance(expression, Interval):
        opening, closing = "(" if expression.left_open else "[", ")" if expression.right_open else "]"
        return f"{opening}{_canonical(expression.start)}, {_canonical(expression.end)}{closing}"
    if isinstance(expression, Union):
        return " or ".join(sorted(map(_canonical, expression.args)))
    if isinstance(expression, Relational):
        return str(expression.canonical)
    return _value(expression) if isinstance(expression, Expr) else str(expression)


def _value(expression: Expr) -> str:
    if any(type(node).__name__ in _UNEVALUATED for node in preorder_traversal(expression)):
        return str(expression)
    number = plain_number(expression)
    if number is not None:
        return canonical_number(number)
    value = exact(expression)
    free = sorted(value.free_symbols, key=str)
    if not free:
        return _constant(value)
    if len(free) == 1 and value == free[0]:
        return str(value)
    return _function(value, free)


def _constant(value: Any) -> str:
    """The exact fraction where there is one, else thirty digits."""
    if value.is_Rational:
        return _fraction(Fraction(value.p, value.q))
    real, imaginary = value.evalf(PRECISION).as_real_imag()
    if not (isinstance(real, Float | Integer | Rational) and isinstance(imaginary, Float | Integer | Rational)):
        return str(value)
    if abs(imaginary) <= abs(real) * Rational(1, 10**40):
        return _digits(real)
    return f"{_digits(real)} + {_digits(imaginary)}i" if real != 0 else f"{_digits(imaginary)}i"


def _digits(number: Any) -> str:
    exact_value = Rational(number)
    value = Fraction(exact_value.p, exact_value.q)
    simple = rational_near(value)
    return _fraction(simple) if simple is not None else str(number.n(DIGITS)).rstrip("0")


def _function(value: Any, free: list[Any]) -> str:
    """A function is told by its values: equal functions may be written in unequal ways."""
    values = [_constant(value.subs(point(free, shift)).doit()) for shift in range(2)]
    return f"f({', '.join(map(str, free))}): " + "; ".join(values)
