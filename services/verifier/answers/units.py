"""Units of measure behind a value: `5 cm`, `5\\text{ m}`, `90^\\circ`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from services.verifier.answers.runs import FUNCTIONS

_SHORT = "cm|mm|km|kg|mg|ml|ft|in|mi|lb|lbs|oz|hr|hrs|mph|sq|pm|am"
_DEGREES = re.compile(r"\s*(?:\^\s*(?:\\circ|\{\s*\\circ\s*\})|°)")
_TEXT = re.compile(
    r"(?<=\S)\s*\\(?:text|textrm|mathrm|mbox|rm)\s*\{(?!\s*(?:and|or)\s*\})(?P<name>[^{}]*)\}(?P<power>\^\{?\d\}?)?$"
)
_WORD = re.compile(
    rf"(?<=[\d)}}%])\s+(?P<name>(?!(?:{'|'.join(FUNCTIONS)}|and|or)\b)(?:{_SHORT}|[a-zA-Z]{{3,}})\b[a-zA-Z ]*)"
    r"(?P<power>\^\{?\d\}?)?$"
)
_LETTER = re.compile(r"(?<=[\d)}])\s+(?P<name>[mgslLh])(?P<power>\^\{?\d\}?)?$")

# A dimension, and how many of its first unit one is.
KNOWN = {
    name: (dimension, Fraction(size))
    for dimension, units in {
        "length": {"mm": "1", "cm": "10", "m": "1000", "km": "1000000"},
        "imperial length": {"in": "1", "inch": "1", "inches": "1", "ft": "12", "foot": "12", "feet": "12"}
        | {"mi": "63360", "mile": "63360"},
        "mass": {"mg": "1", "g": "1000", "kg": "1000000"},
        "time": {"s": "1", "sec": "1", "second": "1", "min": "60", "minute": "60", "h": "3600", "hr": "3600"}
        | {"hour": "3600", "day": "86400"},
        "volume": {"ml": "1", "l": "1000", "liter": "1000", "litre": "1000"},
    }.items()
    for name, size in units.items()
}


@dataclass(frozen=True)
class Measure:
    """A value and the unit behind it; empty when there is none."""

    value: str
    unit: str = ""
    power: int = 1


def split_unit(text: str) -> Measure:
    """The value without its unit; never nothing of something."""
    plain = _DEGREES.sub("", text)
    for pattern in (_TEXT, _WORD):
        match = pattern.search(plain)
        if match is not None and plain[: match.start()].strip():
            return _measure(plain, match)
    return Measure(plain.strip())


def in_one_unit(gold: Measure, answer: Measure) -> tuple[Fraction, Fraction] | None:
    """Factors that bring two values to one unit; None when their units measure different things.

    Only units that are known on both sides are compared: a unit that one side leaves out is not asked for.
    """
    one, other = KNOWN.get(gold.unit), KNOWN.get(answer.unit)
    if one is None or other is None:
        return Fraction(1), Fraction(1)
    if one[0] != other[0] or gold.power != answer.power:
        return None
    return one[1] ** gold.power, other[1] ** answer.power


def with_letter_unit(text: str, like: Measure) -> Measure:
    """`5 m` as a measure where the other side has a unit: by itself, a letter is a variable."""
    match = _LETTER.search(text) if like.unit in KNOWN else None
    return _measure(text, match) if match is not None else Measure(text)


def _measure(text: str, match: re.Match[str]) -> Measure:
    name = " ".join(match["name"].split()).lower().rstrip(".")
    name = name if name in KNOWN or not name.endswith("s") else name.removesuffix("s")
    power = int(re.sub(r"\D", "", match["power"])) if match["power"] else 1
    return Measure(text[: match.start()].strip(), name, power)
