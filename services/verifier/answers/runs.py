"""Runs of mathematics inside prose: `so we get pi/2` holds `pi/2`, `42 + 7 = 49` is one run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FUNCTIONS = frozenset(
    {"pi", "sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "abs", "inf", "infinity"}
)
JOINERS = frozenset({"and", "or", ","})

_SEGMENT = r"\$\$[^$]+\$\$|(?<!\\)\$(?=[^\s$])[^$\n]*(?<=[^\s\\])\$(?!\d)|\\\((?:(?!\\\)).)+\\\)|\\\[(?:(?!\\\]).)+\\\]"
_TOKEN = re.compile(rf"(?P<latex>{_SEGMENT})(?P<after>[^\s\w$\\]*)|\n|(?:(?!{_SEGMENT})\S)+", re.DOTALL)
_DELIMITERS = re.compile(r"^(?:\$\$?|\\[(\[])|(?:\$\$?|\\[)\]])$")
_EMPHASIS = re.compile(r"(?<![\w)])\*\*|\*\*(?![\w(])|(?<!\w)__|__(?!\w)|`")
_PERCENT = re.compile(r"(?<=\d)\s*(?:percentage|percent|per cent|pct)\b")
_WITH_UNIT = re.compile(r"([-−]?[$€£¥]?\d[\d,]*(?:\.\d+)?)(?!(?:st|nd|rd|th)$)[a-zA-Z]{2,}\d?")
_MATHS = re.compile(r"[\w\s+\-*/^().,=<>!%|{}\[\]\\√∞×÷·−–°$€£¥≤≥±≈]+")
_LETTERS = re.compile(r"\\?[^\W\d_]+")
_OPERATORS = "=+-*/^<>≤≥≈×÷·−±"
_DASHES = ("-", "–", "—")
_CONTENT = re.compile(r"[\w∞]")


@dataclass(frozen=True)
class Word:
    """One token: a LaTeX segment without its delimiters, or plain text without the punctuation that ends it."""

    text: str
    latex: bool
    end: str  # punctuation after it

    @property
    def ends_sentence(self) -> bool:
        return any(mark in self.end for mark in ".;:?!")


@dataclass(frozen=True)
class Run:
    """Words of mathematics that stand together, and where they are joined as a list."""

    items: tuple[str, ...]

    @property
    def text(self) -> str:
        return ", ".join(self.items)


def runs_in(text: str) -> list[Run]:
    """All runs, in order. Lines, sentences and prose separate them."""
    plain = _PERCENT.sub("%", _EMPHASIS.sub("", text))
    return [run for line in _lines(plain) for run in _runs_of(line)]


def _lines(text: str) -> Iterator[list[Word]]:
    line: list[Word] = []
    for match in _TOKEN.finditer(text):
        if match[0] == "\n":
            yield line
            line = []
        elif match["latex"]:
            line.append(Word(_DELIMITERS.sub("", match["latex"]).strip(), True, match["after"]))
        else:
            line.append(_plain_word(match[0]))
    yield line


def _plain_word(token: str) -> Word:
    stripped = token.rstrip(".,;:?!*_\"'")
    if stripped.count("(") < stripped.count(")"):
        stripped = stripped.removesuffix(")")
    end = token[len(stripped) :]
    with_unit = _WITH_UNIT.fullmatch(stripped)
    if with_unit and not set(_LETTERS.findall(stripped)) & FUNCTIONS:
        stripped = with_unit[1]
    return Word(stripped or token, False, end if stripped else "")


def _runs_of(line: list[Word]) -> Iterator[Run]:
    items: list[str] = []
    current: list[str] = []

    def close() -> Iterator[Run]:
        if current:
            items.append(" ".join(current))
        if items and any(_CONTENT.search(item) for item in items):
            yield Run(tuple(items))
        items.clear()
        current.clear()

    for i, word in enumerate(line):
        joins = word.text.lower() in JOINERS and bool(items or current)
        if joins and i + 1 < len(line) and _is_maths(line, i + 1):
            _next_item(items, current)
            continue
        if not _is_maths(line, i) or ":" in word.end:
            if current and current[-1] in _DASHES:  # `12 - that is all`
                current.pop()
            yield from close()
            continue
        if word.latex and current and not _is_open(current[-1]):
            yield from close()
        current.append(word.text)
        if word.ends_sentence:
            yield from close()
        elif "," in word.end:
            _next_item(items, current)
    yield from close()


def _next_item(items: list[str], current: list[str]) -> None:
    if current:
        items.append(" ".join(current))
        current.clear()


def _is_open(text: str) -> bool:
    return text[-1] in _OPERATORS


def _is_maths(line: list[Word], i: int) -> bool:
    word = line[i]
    if word.latex:
        return True
    if not _MATHS.fullmatch(word.text):
        return False
    names = [name for name in _LETTERS.findall(word.text) if not name.startswith("\\")]
    if any(len(name) > 1 and name.lower() not in FUNCTIONS for name in names):
        return False
    return len(word.text) > 1 or not word.text.isalpha() or len(line) == 1 or _beside_operator(line, i)


def _beside_operator(line: list[Word], i: int) -> bool:
    before = line[i - 1].text[-1:] if i else ""
    after = line[i + 1].text[:1] if i + 1 < len(line) else ""
    return (before != "" and before in _OPERATORS) or (after != "" and after in _OPERATORS)
