"""Whether two expressions are the same value. Numbers are compared as rationals or to 50 digits, never as floats.

Comparing is symmetric. math-verify decides what is left, asked both ways: relations, sets of unlike kinds, words.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, cast

import math_verify
from sympy import (
    Basic,
    Eq,
    Expr,
    FiniteSet,
    Float,
    I,
    Integer,
    Intersection,
    Interval,
    MatrixBase,
    Mul,
    Or,
    Rational,
    Set,
    Symbol,
    Tuple,
    UnevaluatedExpr,
    Union,
    oo,
)
from sympy.core.numbers import ComplexInfinity, Infinity, NaN, NegativeInfinity
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanFunction

from services.verifier.answers.latex import Expression
from services.verifier.answers.numbers import PlainNumber, approximates, same_number

PRECISION = 50  # decimal digits that two irrational values must share
AGREEMENT = Rational(1, 10**40)
SMALL_DENOMINATOR = 10**6
MIN_POINTS = 3
# Values for free symbols: of both signs, below and above one, with nothing in common.
POINTS = ((37, 101), (-53, 29), (211, 89), (-17, 131), (997, 67))
_PERCENT = UnevaluatedExpr(Rational(1, 100))


def same(gold: Expression, answer: Expression) -> bool:
    """Whether two expressions have one value; in either order."""
    gold, answer = _as_sets(*_without_assignment(_alone(gold), _alone(answer)))
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
    if isinstance(gold, Union) and isinstance(answer, Union):
        return _same_elements(gold.args, answer.args)
    if isinstance(gold, FiniteSet | Tuple) != isinstance(answer, FiniteSet | Tuple) and _is_value(gold, answer):
        return False
    if gold.is_Symbol and answer.is_Symbol:
        return str(gold) == str(answer)
    if isinstance(gold, Expr) and isinstance(answer, Expr) and not (gold.is_Symbol or answer.is_Symbol):
        return _same_values(gold, answer)
    return _verified(gold, answer)


def scaled(expression: Expression, factor: Fraction) -> Expression:
    """In another unit."""
    if factor == 1 or not isinstance(expression, Expr):
        return expression
    return cast("Expression", expression * Rational(factor.numerator, factor.denominator))


def _verified(gold: Expression, answer: Expression) -> bool:
    """math-verify's decision, which depends on the order it is asked in: here, both must agree."""
    return bool(
        math_verify.verify(gold, answer, timeout_seconds=None)
        and math_verify.verify(answer, gold, timeout_seconds=None)
    )


def _as_sets(gold: Expression, answer: Expression) -> tuple[Expression, Expression]:
    """An inequality beside an interval is the set of its solutions: `x > 5` and `(5, \\infty)`."""
    if isinstance(gold, Set) and _is_inequality(answer):
        return gold, solutions(answer)
    if isinstance(answer, Set) and _is_inequality(gold):
        return solutions(gold), answer
    return gold, answer


def _is_inequality(expression: Expression) -> bool:
    return isinstance(expression, BooleanFunction | Relational) and not isinstance(expression, Eq)


def solutions(relation: Basic) -> Basic:
    """The real solutions in the one variable of a relation; the relation itself where they cannot be had."""
    parts = relation.args if isinstance(relation, BooleanFunction) else (relation,)
    if len(relation.free_symbols) != 1 or not all(isinstance(part, Relational) for part in parts):
        return relation
    try:
        solved = [part.as_set() for part in parts]
    except (NotImplementedError, ValueError, TypeError):
        return relation
    return cast("Basic", (Union if isinstance(relation, Or) else Intersection)(*solved))


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
    plain_gold, plain_answer = plain_number(gold), plain_number(answer)
    if plain_gold is not None and plain_answer is not None:
        return same_number(plain_gold, plain_answer)
    exact_gold, exact_answer = exact(gold), exact(answer)
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


def plain_number(expression: Expr) -> PlainNumber | None:
    """The expression as a plain number; a decimal keeps its last place."""
    if isinstance(expression, Mul) and expression.args and expression.args[-1] == _PERCENT:
        share = plain_number(Mul(*expression.args[:-1]))
        return None if share is None else PlainNumber(share.value, percent=True, step=share.step)
    evaluated = expression.doit() if _is_written(expression) else exact(expression)
    if isinstance(evaluated, Float):
        value = _rational(evaluated)
        places = len(str(evaluated).rstrip("0").partition(".")[2]) if "e" not in str(evaluated) else 0
        return PlainNumber(Fraction(value.p, value.q), step=Fraction(1, 10**places) if places else None)
    if isinstance(evaluated, Rational) and evaluated.is_finite:
        return PlainNumber(Fraction(evaluated.p, evaluated.q))
    return None


def _is_written(expression: Expr) -> bool:
    """Whether it is a decimal and its sign: what is evaluated in floating point has no last place."""
    if isinstance(expression, Mul) and len(expression.args) == 2 and expression.args[0] == -1:
        return isinstance(expression.args[1], Float)
    return isinstance(expression, Float)


def rational_near(value: Fraction) -> Fraction | None:
    """The fraction of small terms that a value of PRECISION digits stands for, if any."""
    near = value.limit_denominator(SMALL_DENOMINATOR)
    return near if abs(near - value) <= max(abs(value), Fraction(1)) / 10**40 else None


def _rational(value: Float) -> Rational:
    return Rational(str(value))


def exact(expression: Expr) -> Expr:
    """Evaluated, with every decimal as the rational that it writes down."""
    written: dict[Basic, Basic] = {value: _rational(value) for value in expression.atoms(Float) if value.is_finite}
    # The parser makes symbols of one name differ by assumption, and the imaginary unit a symbol.
    written |= {symbol: I if symbol.name == "i" else Symbol(symbol.name) for symbol in expression.free_symbols}
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
        values = point(free, shift)
        one, other = gold.subs(values), answer.subs(values)
        if any(side.has(oo, ComplexInfinity(), NaN()) or not side.is_number for side in (one, other)):
            continue
        if not _agree(one.doit(), other.doit()):
            return False
        counted += 1
    return counted >= MIN_POINTS or _verified(gold, answer)


def point(free: Sequence[Basic], shift: int) -> dict[Basic, Rational]:
    """A value for every free symbol, in their order; `shift` in [0, 5) chooses among unlike points."""
    return {symbol: Rational(*POINTS[(shift + i) % len(POINTS)]) + i // len(POINTS) for i, symbol in enumerate(free)}
