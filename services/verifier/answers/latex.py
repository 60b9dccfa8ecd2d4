"""From the text of an answer to a sympy expression, by math-verify's LaTeX parser."""

from __future__ import annotations

import re
from typing import TypeAlias

from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex
from math_verify.parser import parse_latex_cached
from sympy import Basic, MatrixBase

from services.verifier.answers.runs import FUNCTIONS
from services.verifier.answers.text import without_delimiters

# math-verify's own unit rules also take the `t` of `3t`; what is a unit here is said below.
_NORMALIZATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
)
_SYMBOLS = str.maketrans(
    {"−": "-", "–": "-", "×": r"\times ", "÷": r"\div ", "·": r"\cdot ", "π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt "}
    | {"≤": r"\le ", "≥": r"\ge ", "±": r"\pm ", "∪": r"\cup ", "°": ""}
)
_DEGREES = re.compile(r"\^\s*(?:\\circ|\{\s*\\circ\s*\})")
_FUNCTION = re.compile(
    rf"(?<![\\a-zA-Z])({'|'.join(sorted(FUNCTIONS - {'inf', 'infinity', 'abs'}, key=len, reverse=True))})(?![a-zA-Z])"
)
_GROUP_EXPONENT = re.compile(r"\^\s*\(([^()]*)\)")
_LONG_EXPONENT = re.compile(r"\^\s*([+-]?\d{2,})")
_PAREN_FRACTION = re.compile(r"(?<![\w)}])\(([^()]+)\)\s*/\s*\(([^()]+)\)")
_TEXT_UNIT = re.compile(
    r"(?<=\S)\s*\\(?:text|textrm|mathrm|mbox|rm)\s*\{(?!\s*(?:and|or)\s*\})[^{}]*\}(?:\^\{?\d\}?)?$"
)
_SHORT_UNITS = "cm|mm|km|kg|mg|ml|ft|in|mi|lb|lbs|oz|hr|hrs|mph|sq|pm|am"
_WORD_UNIT = re.compile(
    rf"(?<=[\d)}}%])\s+(?!(?:{'|'.join(FUNCTIONS)}|and|or)\b)(?:{_SHORT_UNITS}|[a-zA-Z]{{3,}})\b[a-zA-Z ]*$"
)
_EQUALS = re.compile(r"(?<![\\<>!:=])=(?!=)|\\approx\b|≈")
_RELATION = re.compile(r"[=<>≤≥≠]|\\(?:leq?|geq?|lt|gt|neq?|approx|in)(?![a-zA-Z])")

Expression: TypeAlias = Basic | MatrixBase


class UnreadableError(ValueError):
    """The text is not mathematics that the parser knows."""


def bare(text: str) -> str:
    """The answer without delimiters, degrees, final punctuation and units; never nothing of something."""
    stripped = _DEGREES.sub("", without_delimiters(text)).rstrip(" .,;:")
    for unit in (_TEXT_UNIT, _WORD_UNIT):
        stripped = unit.sub("", stripped).strip() or stripped
    return stripped


def is_relation(text: str) -> bool:
    return _RELATION.search(_top_level(text)) is not None


def right_side(text: str) -> str:
    """What follows the last equals sign, unless the text is a list. Signs inside brackets do not count."""
    outside = _top_level(text)
    signs = [] if "," in outside else list(_EQUALS.finditer(outside))
    return text[signs[-1].end() :].strip() if signs else text


def _top_level(text: str) -> str:
    """The text with everything inside brackets blanked, position for position."""
    depth, outside = 0, []
    for character in text:
        depth -= character in ")]}"
        outside.append(character if depth <= 0 else " ")
        depth += character in "([{"
    return "".join(outside)


def read_expression(text: str) -> Expression:
    """Parse an answer that `precheck` has passed. Raises UnreadableError."""
    latex = _as_latex(text)
    if not latex:
        raise UnreadableError("there is nothing to read")
    try:
        parsed = parse_latex_cached(normalize_latex(latex, _NORMALIZATION))
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # the parser raises bare exceptions, and whatever sympy's constructors raise
        raise UnreadableError(str(error).splitlines()[0] if str(error) else type(error).__name__) from error
    if not isinstance(parsed, Expression):
        raise UnreadableError(f"the parser made a {type(parsed).__name__} of it")
    return parsed


def _as_latex(text: str) -> str:
    latex = text.translate(_SYMBOLS).replace("**", "^").replace("<=", r"\le ").replace(">=", r"\ge ")
    latex = re.sub(r"(?<!\\)\*", r"\\cdot ", latex)
    latex = _FUNCTION.sub(r"\\\1 ", latex)
    latex = _PAREN_FRACTION.sub(r"\\frac{\1}{\2}", latex)
    return _LONG_EXPONENT.sub(r"^{\1}", _GROUP_EXPONENT.sub(r"^{\1}", latex)).strip()
