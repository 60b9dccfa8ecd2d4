"""From the text of an answer to a sympy expression, by math-verify's LaTeX parser."""

from __future__ import annotations

import re
from functools import lru_cache
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
_FUNCTION = re.compile(
    rf"(?<![\\a-zA-Z])({'|'.join(sorted(FUNCTIONS - {'inf', 'infinity', 'abs'}, key=len, reverse=True))})(?![a-zA-Z])"
)
_GROUP = re.compile(r"(?:\^|(?<![a-zA-Z])\\?sqrt|√)\s*(?=\()")
_GAP = re.compile(r"(?<=\d)(?:\\[,:;! ]|\{,\}|~|[\u00a0\u2009\u202f])(?=\d{3}(?!\d))")
_PERCENT = re.compile(r"(?<=[\d}])\s*(?:percent|per cent|\\text\s*\{\s*percent\s*\})$")
_SUPERSCRIPT = re.compile(r"(?<=[\w)}\]])[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_LONG_EXPONENT = re.compile(r"\^\s*([+-]?\d{2,})")
_PAREN_FRACTION = re.compile(r"(?<![\w)}])\(([^()]+)\)\s*/\s*\(([^()]+)\)")
_MEMBER = re.compile(r"\s*([a-zA-Z])\s*(?:\\in(?![a-zA-Z])|∈)\s*")
_OR = re.compile(r"\b(?:or|and)\b|\\(?:lor|vee|text)\b")
_EQUALS = re.compile(r"(?<![\\<>!:=])=(?!=)|\\approx\b|≈")
_RELATION = re.compile(r"[=<>≤≥≠]|\\(?:leq?|geq?|lt|gt|neq?|approx|in)(?![a-zA-Z])")

Expression: TypeAlias = Basic | MatrixBase


class UnreadableError(ValueError):
    """The text is not mathematics that the parser knows."""


def bare(text: str) -> str:
    """The answer without delimiters, raised characters, spaces inside numbers and final punctuation."""
    plain = _SUPERSCRIPT.sub(lambda match: f"^{{{match[0].translate(_RAISED)}}}", text)
    return _PERCENT.sub(r"\\%", without_delimiters(_GAP.sub("", plain)).rstrip(" .,;:"))


def is_relation(text: str) -> bool:
    return _RELATION.search(_top_level(text)) is not None


def is_membership(text: str) -> bool:
    return _MEMBER.match(text) is not None


def right_side(text: str) -> str:
    """What follows the last equals sign, or `x \\in`, unless the text is a list. Signs inside brackets do not count."""
    member = _MEMBER.match(text)
    if member is not None:
        return text[member.end() :]
    outside = _top_level(text)
    signs = [] if "," in outside or _OR.search(outside) else list(_EQUALS.finditer(outside))
    return text[signs[-1].end() :].strip() if signs else text


def _top_level(text: str) -> str:
    """The text with everything inside brackets blanked, position for position."""
    depth, outside = 0, []
    for character in text:
        depth -= character in ")]}"
        outside.append(character if depth <= 0 else " ")
        depth += character in "([{"
    return "".join(outside)


@lru_cache(maxsize=1024)
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
    latex = _braced(text).translate(_SYMBOLS).replace("**", "^").replace("<=", r"\le ").replace(">=", r"\ge ")
    latex = re.sub(r"(?<!\\)\*", r"\\cdot ", latex)
    latex = _FUNCTION.sub(r"\\\1 ", latex)
    latex = _PAREN_FRACTION.sub(r"\\frac{\1}{\2}", latex)
    return _LONG_EXPONENT.sub(r"^{\1}", latex).strip()


def _braced(text: str) -> str:
    """Braces for the parentheses after `^` and `sqrt`, which the parser does not group by."""
    characters, open_at = list(text), [match.end() for match in _GROUP.finditer(text)]
    for begin in open_at:
        depth = 0
        for at in range(begin, len(text)):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            if depth == 0:
                characters[begin], characters[at] = "{", "}"
                break
    return "".join(characters)
