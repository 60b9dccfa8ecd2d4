"""Plain numbers, read and compared exactly: integers, decimals, fractions, mixed numbers, percentages, powers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 4000  # Python's own limit for reading an integer is 4,300
MAX_EXPONENT = 400
MIN_APPROXIMATION_DIGITS = 6  # what math-verify rounds to

_DIGITS = rf"(?:\d{{1,3}}(?:,\d{{3}})+|\d{{1,3}}(?: \d{{3}})+|\d{{1,{MAX_DIGITS}}})"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d{{0,{MAX_DIGITS}}})?|\.\d{{1,{MAX_DIGITS}}})"
_INTEGER = rf"\d{{1,{MAX_DIGITS}}}"
_POWER = r"(?:[eE](?P<e>[+-]?\d{1,3})|\s*(?:\*|\\times|\\cdot)\s*10\s*\^\s*\{?\s*(?P<ten>[+-]?\d{1,3})\s*\}?)"
_ABOVE = rf"(?:\{{\s*(?P<fs>-?)(?P<fa>{_INTEGER})\s*\}}|(?P<fa1>\d))"
_BELOW = rf"(?:\{{\s*(?P<fb>{_INTEGER})\s*\}}|(?P<fb1>\d))"
_FRACTION = rf"\\[dtc]?frac\s*{_ABOVE}\s*{_BELOW}"
_WHOLE = rf"(?:(?P<whole>{_DIGITS})(?=\s*\\[dtc]?frac|\s+[1-9]\d*\s*/)\s*)?"
_RECURRING = rf"\\(?:overline|bar)\s*\{{\s*(?P<recurring>\d{{1,{MAX_EXPONENT}}})\s*\}}"
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?)\s*(?:{_WHOLE}(?:{_FRACTION}|(?P<above>{_INTEGER})\s*/\s*(?P<below>{_INTEGER}))"
    rf"|(?P<a>{_DECIMAL})(?:{_RECURRING}|\s*/\s*(?P<b>{_INTEGER})|{_POWER})?)\s*(?P<percent>\\?%)?"
)
_SAME = str.maketrans({"−": "-", "–": "-", "×": "*", "％": "%"})
_CURRENCY = re.compile(r"^(-?)\s*(?:\\?\$|[€£¥])\s*")
_THIN = re.compile(r"\{,\}|\\[,!](?=\d)")


@dataclass(frozen=True)
class PlainNumber:
    """An exact value; `value` of 50% is 50 with `percent` set. `step` is one unit of a decimal's last place."""

    value: Fraction
    percent: bool = False
    step: Fraction | None = None

    def times(self, factor: Fraction) -> PlainNumber:
        """In another unit."""
        return PlainNumber(self.value * factor, self.percent, self.step and self.step * factor)

    @property
    def share(self) -> PlainNumber:
        """Without the percent sign: 50% as 0.5."""
        return PlainNumber(self.value / 100, step=self.step and self.step / 100) if self.percent else self

    @property
    def readings(self) -> tuple[PlainNumber, ...]:
        """50% may stand for 0.5, and for 50 where the question asks for a percentage; 0.5% is never 0.5."""
        if self.percent and abs(self.value) >= 1:
            return (self.share, PlainNumber(self.value, step=self.step))
        return (self.share,)


def read_number(text: str) -> PlainNumber | None:
    """The number, if the text is one and nothing else. Linear in the length of the text."""
    compact = _CURRENCY.sub(r"\1", _THIN.sub(lambda m: "," if m[0] == "{,}" else "", text.strip().translate(_SAME)))
    match = _NUMBER.fullmatch(compact.strip())
    if match is None:
        return None
    magnitude, step = _fraction(match) or _decimal(match)
    if magnitude is None:
        return None
    value = -magnitude if match["sign"] == "-" else magnitude
    return PlainNumber(value, percent=match["percent"] is not None, step=step)


def same_number(gold: PlainNumber, answer: PlainNumber) -> bool:
    """Equal exactly, or a decimal of six or more digits that approximates a value no decimal can hold."""
    if gold.percent and answer.percent:
        return _same_value(gold, answer)
    return any(_same_value(one, other) for one in gold.readings for other in answer.readings)


def _same_value(gold: PlainNumber, answer: PlainNumber) -> bool:
    if gold.value == answer.value:
        return True
    if answer.step is not None and not is_finite_decimal(gold.value):
        return approximates(answer.value, answer.step, gold.value)
    if gold.step is not None and not is_finite_decimal(answer.value):
        return approximates(gold.value, gold.step, answer.value)
    return False


def approximates(decimal: Fraction, step: Fraction, exact: Fraction) -> bool:
    """Whether a decimal gives `exact` to its last place, rounded or cut, and shows at least six digits of it."""
    enough = abs(decimal) >= step * 10 ** (MIN_APPROXIMATION_DIGITS - 1)
    return enough and abs(decimal - exact) < step


def is_finite_decimal(value: Fraction) -> bool:
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def _fraction(match: re.Match[str]) -> tuple[Fraction | None, Fraction | None] | None:
    above, below = match["fa"] or match["fa1"] or match["above"], match["fb"] or match["fb1"] or match["below"]
    if above is None:
        return None
    value = _over(Fraction(int(above)), below)
    if value is None or match["whole"] is None:
        return (-value if value is not None and match["fs"] else value), None
    if match["fs"] or value >= 1:  # not a mixed number
        return None, None
    return _integer(match["whole"]) + value, None


def _decimal(match: re.Match[str]) -> tuple[Fraction | None, Fraction | None]:
    whole, _, places = match["a"].partition(".")
    value = _integer(whole) + Fraction(int(places or 0), 10 ** len(places))
    if match["b"] is not None:
        return _over(value, match["b"]), None
    if match["recurring"] is not None:
        if "." not in match["a"]:
            return None, None
        period = match["recurring"]
        return value + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(places)), None
    exponent = int(match["e"] or match["ten"] or 0)
    if abs(exponent) > MAX_EXPONENT:
        return None, None
    scale = Fraction(10) ** exponent
    return value * scale, Fraction(1, 10 ** len(places)) * scale if places else None


def _integer(digits: str) -> Fraction:
    return Fraction(int(re.sub("[, ]", "", digits) or 0))


def _over(above: Fraction, below: str) -> Fraction | None:
    return above / int(below) if int(below) else None
