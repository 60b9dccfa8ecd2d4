"""Answers that are words, and the LaTeX around them."""

from __future__ import annotations

import re
import unicodedata

TEXT_COMMAND = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
DELIMITERS = re.compile(r"\\[()\[\]](?![a-zA-Z])|\\?\$")
SPACING = re.compile(r"\\[,;:!>]|\\q?quad\b|\\displaystyle\b|\\ |~")
WORDS = re.compile(r"[^\W\d_][^\W\d_'’-]+(?: [^\W\d_'’-]+)*")
SHORT_PRODUCT = 3  # letters: `xy` may be a product, `Thursday` is not


def normalized(text: str) -> str:
    """Case, spacing, emphasis, text commands, delimiters and a final full stop do not matter."""
    unified = unicodedata.normalize("NFKC", without_delimiters(text)).casefold()
    unified = TEXT_COMMAND.sub(r"\1", unified)
    return " ".join(re.sub(r"[*`]", "", unified).split()).strip(" .")


def without_delimiters(text: str) -> str:
    """Drop `$`, `\\(`, `\\[` and spacing commands; what is between them stays."""
    return SPACING.sub(" ", DELIMITERS.sub("", text)).strip()


def words_of(text: str) -> str | None:
    """The text if it is words and not mathematics."""
    plain = TEXT_COMMAND.sub(r"\1", without_delimiters(text)).strip(" .")
    return plain if WORDS.fullmatch(plain) else None


def may_be_a_product(words: str) -> bool:
    return len(words) <= SHORT_PRODUCT and " " not in words
