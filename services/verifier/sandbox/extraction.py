"""Which part of a response is the program."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$")
PYTHON = frozenset({"python", "python3", "py", "py3", "{python}", "{.python}"})


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def program_of(response: str) -> str:
    """The last block marked as Python; else the last one without a mark; else the last one; else all of the text.

    A last block that does not end runs to the end of the text.
    """
    blocks = fenced_blocks(response)
    for languages in (PYTHON, frozenset({""})):
        chosen = [block for block in blocks if block.language in languages]
        if chosen:
            return chosen[-1].text
    return blocks[-1].text if blocks else response


def fenced_blocks(text: str) -> list[Block]:
    blocks: list[Block] = []
    fence, language, indent = "", "", 0
    lines: list[str] = []
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if not fence and mark:
            fence, language, lines = mark[1], mark[2].lower(), []
            indent = len(line) - len(line.lstrip(" "))
        elif fence and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            blocks.append(Block(language, "\n".join(lines) + "\n"))
            fence = ""
        elif fence:
            lines.append(_unindented(line, indent))
    if fence:
        blocks.append(Block(language, "\n".join(lines) + "\n"))
    return blocks


def _unindented(line: str, indent: int) -> str:
    """A fence that is indented, as in a list, indents its content as well."""
    lead = len(line) - len(line.lstrip(" "))
    return line[min(indent, lead) :]
