"""Whether two expressions are the same value. Numbers are compared as rationals or to 50 digits, never as floats.

math-verify decides what is left: relations, intervals against sets, matrices of unlike shape, symbols made of letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import math_verify
from sympy import (
    Basic,
    Eq,
    Expr,
    FiniteSet,
    Float,
    I,
    Integer,
    Interval,
    MatrixBase,
    Mul,
    Rational,
    Symbol,
    Tuple,
    UnevaluatedExpr,
    oo,
)
from sympy.core.numbers import ComplexInfinity, Infinity, NaN, NegativeInfinity

from services.verifier.answers.latex import Expression
from services.verifier.answers.numbers import PlainNumber, approximates, same_number

PRECISION = 50  # decimal digits that two irrational values must share
AGREEMENT = Rational(1, 10**40)
MIN_POINTS = 3
# Values for free symbols: of both signs, below and above one, with nothing in common.
POINTS = ((37, 101), (-53, 29), (211, 89), (-17, 131), (997, 67))
_PERCENT = UnevaluatedExpr(Rational(1, 100))


def same(gold: Expression, answer: Expression) -> bool:
    """Whether the answer is the gold expression."""
    gold, answer = _without_assignment(_alone(gold), _alone(answer))
    if isinstance(gold, MatrixBase) or isinstance(answer, MatrixBase):
        return _same_matrices(gold, answer)
    if gold == answer:
        return True
    if isinstance(gold, FiniteSet) and isinstance(answer, FiniteSet):
        return _same_elements(gold.args, answer.args)
    if isinstance(gold, Tuple) and isinstance(answer, Tuple):
        return _same_in_order(gold.args, answer.args)
    if isinstance(gold, Interval) and isinstance(answer, Interval):
        ends = (gold.left_open, gold.right_open) == (answer.left_open, answer.right_open)
        return bool(ends) and same(gold.start, answer.start) and same(gold.end, answer.end)
    if isinstance(gold, FiniteSet | Tuple) != isinstance(answer, FiniteSet | Tuple) and _is_value(gold, answer):
        return False
    if isinstance(gold, Expr) and isinstance(answer, Expr) and not (gold.is_Symbol or answer.is_Symbol):
        return _same_values(gold, answer)
    return bool(math_verify.verify(gold, answer, timeout_seconds=None))


def _alone(expression: Expression) -> Expression:
    """`{5}` as 5."""
    return expression.args[0] if isinstance(expression, FiniteSet) and len(expression.args) == 1 else expression


def _is_value(gold: Expression, answer: Expression) -> bool:
    """Whether one of a pair is a single value: then the other, a list, says something else."""
    return isinstance(gold, Expr) or isinstance(answer, Expr)


def _without_assignment(gold: Expression, answer: Expression) -> tuple[Expression, Expression]:
    """`x = 5` and `5` are the same answer; `x = 5` and `y = 5` are not."""
    if _is_assignment(gold) and _is_assignment(answer):
        return (gold.rhs, answer.rhs) if gold.lhs == answer.lhs else (gold, answer)
    if _is_assignment(gold) and not isinstance(answer, Eq):
        return gold.rhs, answer
    if _is_assignment(answer) and not isinstance(gold, Eq):
        return gold, answer.rhs
    return gold, answer


def _is_assignment(expression: Any) -> bool:
    return isinstance(expression, Eq) and bool(expression.lhs.is_Symbol or expression.lhs.is_Function)


def _same_elements(gold: Sequence[Basic], answer: Sequence[Basic]) -> bool:
    """Every gold element has an equal one, and nothing is left over."""
    if len(gold) != len(answer):
        return False
    left = list(answer)
    for wanted in gold:
        found = next((i for i, given in enumerate(left) if same(wanted, given)), None)
        if found is None:
            return False
        left.pop(found)
    return True


def _same_in_order(gold: Sequence[Basic], answer: Sequence[Basic]) -> bool:
    return len(gold) == len(answer) and all(same(one, other) for one, other in zip(gold, answer, strict=True))


def _same_matrices(gold: Expression, answer: Expression) -> bool:
    if not isinstance(gold, MatrixBase) or not isinstance(answer, MatrixBase) or gold.shape != answer.shape:
        return False
    return _same_in_order(list(gold), list(answer))


def _same_values(gold: Expr, answer: Expr) -> bool:
    plain_gold, plain_answer = _plain(gold), _plain(answer)
    if plain_gold is not None and plain_answer is not None:
        return same_number(plain_gold, plain_answer)
    exact_gold, exact_answer = _exact(gold), _exact(answer)
    if exact_gold == exact_answer:
        return True
    free = sorted(exact_gold.free_symbols | exact_answer.free_symbols, key=str)
    if free:
        return _same_functions(exact_gold, exact_answer, free)
    if exact_gold.is_Rational and exact_answer.is_Rational:
        return bool(exact_gold == exact_answer)
    return (
        _approximated(plain_gold, exact_answer)
        or _approximated(plain_answer, exact_gold)
        or _agree(exact_gold, exact_answer)
    )


def _plain(expression: Expr) -> PlainNumber | None:
    """The expression as a plain number; a decimal keeps its last place."""
    if isinstance(expression, Mul) and expression.args and expression.args[-1] == _PERCENT:
        share = _plain(Mul(*expression.args[:-1]))
        return None if share is None else PlainNumber(share.value, percent=True, step=share.step)
    evaluated = expression.doit()
    if isinstance(evaluated, Float):
        value = _rational(evaluated)
        places = len(str(evaluated).rstrip("0").partition(".")[2]) if "e" not in str(evaluated) else 0
        return PlainNumber(Fraction(value.p, value.q), step=Fraction(1, 10**places) if places else None)
    if isinstance(evaluated, Rational) and evaluated.is_finite:
        return PlainNumber(Fraction(evaluated.p, evaluated.q))
    return None


def _rational(value: Float) -> Rational:
    return Rational(str(value))


def _exact(expression: Expr) -> Expr:
    """Evaluated, with every decimal as the rational that it writes down."""
    written: dict[Basic, Basic] = {value: _rational(value) for value in expression.atoms(Float) if value.is_finite}
    # The parser makes symbols of one name differ by assumption, and the imaginary unit a symbol.
    written |= {symbol: I if symbol.name == "i" else Symbol(symbol.name) for symbol in expression.atoms(Symbol)}
    return expression.xreplace(written).doit()


def _approximated(decimal: PlainNumber | None, exact: Expr) -> bool:
    """Whether a decimal of enough digits approximates an irrational value."""
    if decimal is None or decimal.step is None or exact.is_Rational:
        return False
    value = exact.evalf(PRECISION)
    if not isinstance(value, Float):
        return False
    near = Rational(value)
    return approximates(decimal.value, decimal.step, Fraction(near.p, near.q))


def _agree(gold: Expr, answer: Expr) -> bool:
    """Whether two numbers share their first digits; one that may be zero must be shown to be."""
    if any(isinstance(side, Infinity | NegativeInfinity | ComplexInfinity | NaN) for side in (gold, answer)):
        return False
    one, other = gold.evalf(PRECISION), answer.evalf(PRECISION)
    if not (one.is_number and other.is_number) or one.has(oo) or other.has(oo):
        return False
    if one.is_zero or other.is_zero or gold.is_zero or answer.is_zero:
        return bool((gold - answer).equals(Integer(0)))
    size = max(abs(one), abs(other))
    return bool(abs(one - other) <= AGREEMENT * size)


def _same_functions(gold: Expr, answer: Expr, free: list[Basic]) -> bool:
    """Whether two functions agree at points of both signs, to 40 digits; undefined points do not count."""
    counted = 0
    for shift in range(len(POINTS)):
        values = {
            symbol: Rational(*POINTS[(shift + i) % len(POINTS)]) + i // len(POINTS) for i, symbol in enumerate(free)
        }
        one, other = gold.subs(values), answer.subs(values)
        if any(side.has(oo, ComplexInfinity(), NaN()) or not side.is_number for side in (one, other)):
            continue
        if not _agree(one.doit(), other.doit()):
            return False
        counted += 1
    return counted >= MIN_POINTS or bool(math_verify.verify(gold, answer, timeout_seconds=None))
