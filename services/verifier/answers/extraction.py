"""Which part of a text is the answer: the last box, else what follows `answer is`, else the last expression."""

from __future__ import annotations

import re
from dataclasses import dataclass

from services.verifier.answers.runs import Run, runs_in

TAIL = 4_000  # characters of an unboxed response that are looked at; an answer stands at the end
_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_BETWEEN_BOXES = re.compile(r"[\s$]*(?:,|;|,?\s*(?:and|or)\b|\\text\{\s*(?:and|or)\s*\})[\s$]*")
_ANCHOR = re.compile(r"(?:\banswer\b[^\n.:=]{0,60}?(?:\bis\b|:|=)|####)(?!\s*not\b)", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?;](?:\s|$)|\n")
_TOKEN = re.compile(r"\\?[a-zA-Z]+|[^\s{}$]+")
_LEADING = " \t\r\n:*_=`"


class UnfinishedBoxError(ValueError):
    """The last box has no end: the text was cut inside the answer."""


@dataclass(frozen=True)
class Answer:
    """Text that a response gives as its answer; empty when it gives nothing where the answer should be."""

    text: str
    source: str  # "box", "statement", "last expression" or "last line"
    runs: tuple[Run, ...] = ()  # the mathematics in it, unless boxed
    at: int = 0  # characters of the response before it


def boxed_answer(text: str) -> Answer | None:
    """The last box, together with boxes that are joined to it by a comma, `and` or `or`.

    Raises UnfinishedBoxError when the last box does not end.
    """
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return None
    last = len(boxes) - 1
    begin, end = _content(text, boxes[last])
    contents, at = [text[begin:end].strip()], begin
    for i in range(last - 1, -1, -1):
        try:
            begin, end = _content(text, boxes[i])
        except UnfinishedBoxError:
            break
        if not _BETWEEN_BOXES.fullmatch(text, _after(text, end), boxes[i + 1].start()):
            break
        contents.append(text[begin:end].strip())
        at = begin
    return Answer(", ".join(dict.fromkeys(reversed(contents))), "box", at=at)


def stated_answer(text: str) -> Answer | None:
    """The last box, else what follows the last `answer is`, `answer:` or `####`. Raises UnfinishedBoxError."""
    boxed = boxed_answer(text)
    if boxed is not None:
        return boxed
    anchors = list(_ANCHOR.finditer(text, max(0, len(text) - TAIL)))
    if not anchors:
        return None
    rest = text[anchors[-1].end() :].lstrip(_LEADING)
    clause = rest.split("\n", 1)[0]
    sentence = _SENTENCE_END.split(clause, maxsplit=1)[0].rstrip(" *_`.")
    return Answer(sentence, "statement", tuple(runs_in(clause)), at=len(text) - len(rest))


def last_expression(text: str) -> Answer | None:
    """The last mathematics in a text that states no answer; None when there is none."""
    runs = runs_in(text[-TAIL:])
    if not runs:
        return None
    at = text.rfind(runs[-1].items[0])
    return Answer(runs[-1].text, "last expression", (runs[-1],), at=max(at, len(text) - TAIL, 0))


def last_line(text: str) -> Answer:
    """The last line of a text that states no answer; empty when there is none."""
    whole = text.rstrip()
    line = whole.rsplit("\n", 1)[-1]
    return Answer(line.strip(), "last line", at=len(whole) - len(line.lstrip()))


def reference_answer(reference: str) -> str:
    """The answer inside a reference, which may be bare, boxed, or a worked solution that ends in `#### 42`."""
    try:
        boxed = boxed_answer(reference)
    except UnfinishedBoxError:
        boxed = None
    return (boxed.text if boxed is not None else reference.rsplit("####", 1)[-1]).strip()


def _content(text: str, box: re.Match[str]) -> tuple[int, int]:
    begin = box.end()
    if begin == len(text):
        raise UnfinishedBoxError
    if text[begin] != "{":
        token = _TOKEN.match(text, begin)
        return begin, token.end() if token else begin
    depth, at = 0, begin
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return begin + 1, at
        at += 1
    raise UnfinishedBoxError


def _after(text: str, end: int) -> int:
    return end + 1 if text[end : end + 1] == "}" else end
