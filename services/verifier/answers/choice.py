"""Multiple choice: options by letter, A to J, and by text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from services.verifier.answers.numbers import read_number, same_number
from services.verifier.answers.text import TEXT_COMMAND, normalized, without_delimiters

_REFERENCE = re.compile(r"\(?([A-J])\)?\.?")
_STATED = re.compile(r"(?:(?:option|choice)\s+)?(?:\(([A-J])\)|([A-J])(?=[\s).:,]|$))", re.IGNORECASE)
_SEVERAL = re.compile(
    r"(?:(?:options|choices)\s+)?\(?[A-J]\)?(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+|\s*&\s*)\(?[A-J]\)?)+\.?"
)
_LETTER = re.compile(r"[A-J]")
_OPTION = re.compile(r"(?:\(([A-J])\)|([A-J])[).:])[\s.:-]*(?=\S)(.*)", re.IGNORECASE | re.DOTALL)
_PROSE_AFTER_ARTICLE = re.compile(r"\s+[a-z]")
_LINE = re.compile(r"\(?([A-J])(?:[).:]\s.*|[).:]?$)")
_MENTION = re.compile(r"\(([A-J])\)|\b(?:[Oo]ption|[Cc]hoice|[Cc]hoose|[Ss]elect|[Pp]ick)(?:\s+is)?:?\s+([A-J])\b")


@dataclass(frozen=True)
class Choice:
    """`letters` in order and without repetition; empty where only the text of an option is given."""

    letters: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.letters}: {self.text}" if self.letters and self.text else self.letters or self.text


def read_choice(text: str) -> Choice | None:
    """`C`, `(C) Paris`, `A and C`, `Paris`; None where there is nothing."""
    plain = _plain(text)
    if _SEVERAL.fullmatch(plain):
        return Choice("".join(sorted(set(_LETTER.findall(plain)))))
    option = _OPTION.fullmatch(plain)
    if option is not None:
        return Choice((option[1] or option[2]).upper(), option[3].strip())
    letter = stated_choice(plain)
    if letter is not None:
        return Choice(letter)
    return Choice("", plain) if normalized(plain) else None


def same_option(one: str, other: str) -> bool:
    """Whether two texts are one option: the same words, or the same number."""
    numbers = read_number(one), read_number(other)
    if numbers[0] is not None and numbers[1] is not None:
        return same_number(numbers[0], numbers[1])
    return normalized(one) == normalized(other)


def choice_of(reference: str) -> str | None:
    """The letter, if the reference is one of A to J and nothing else."""
    match = _REFERENCE.fullmatch(_plain(reference))
    return match[1] if match else None


def stated_choice(answer: str) -> str | None:
    """The letter that a stated or boxed answer begins with: `C`, `(c)`, `C. 42`, `\\text{(C)}`, `option C`."""
    plain = _plain(answer)
    match = _STATED.match(plain)
    if match is None:
        return None
    letter = match[1] or match[2]
    is_article = match[1] is None and letter in "aAI" and _PROSE_AFTER_ARTICLE.match(plain, match.end())
    return None if is_article else letter.upper()


def mentioned_choice(text: str) -> str | None:
    """The last `(C)` or `option C` of a response that states no answer, or the letter its last line begins with."""
    lines = _plain(text).splitlines()
    line = _LINE.match(lines[-1]) if lines else None
    if line is not None:
        return line[1]
    mentions = [match[1] or match[2] for match in _MENTION.finditer(text)]
    return mentions[-1] if mentions else None


def _plain(text: str) -> str:
    return re.sub(r"[*_`]", "", TEXT_COMMAND.sub(r"\1", without_delimiters(text))).strip()
