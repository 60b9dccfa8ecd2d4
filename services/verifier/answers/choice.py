"""Multiple choice: references that are one letter."""

from __future__ import annotations

import re

from services.verifier.answers.text import TEXT_COMMAND, without_delimiters

_REFERENCE = re.compile(r"\(?([A-J])\)?\.?")
_STATED = re.compile(r"(?:(?:option|choice)\s+)?(?:\(([A-J])\)|([A-J])(?=[\s).:,]|$))", re.IGNORECASE)
_PROSE_AFTER_ARTICLE = re.compile(r"\s+[a-z]")
_LINE = re.compile(r"\(?([A-J])(?:[).:]\s.*|[).:]?$)")
_MENTION = re.compile(r"\(([A-J])\)|\b(?:[Oo]ption|[Cc]hoice|[Cc]hoose|[Ss]elect|[Pp]ick)(?:\s+is)?:?\s+([A-J])\b")


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
