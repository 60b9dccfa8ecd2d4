"""Kind `exact`: the last answer equals the reference as text."""

from __future__ import annotations

from typing import Any

from potstill.contracts.verification import VerifyItem
from services.verifier.answers.canonical import canonical_words
from services.verifier.answers.extraction import UnfinishedBoxError, last_line, stated_answer
from services.verifier.answers.text import normalized
from services.verifier.judgement import Judgement, accepted, undetermined, wrong
from services.verifier.kinds import Kind


def judge(item: VerifyItem) -> Judgement:
    """Compare the answer, or the last line where none is stated, without regard to case and spacing."""
    reference = normalized(item.reference or "")
    if not reference:
        return undetermined("the reference is empty")
    explanation: dict[str, Any] = {"reference": item.reference or "", "reference_read_as": reference}
    try:
        answer = stated_answer(item.response) or last_line(item.response)
    except UnfinishedBoxError:
        return wrong("the last box is not finished", source="box", **explanation)
    text = normalized(answer.text)
    explanation |= {"extracted": answer.text, "source": answer.source, "at": answer.at, "read_as": text}
    if not text:
        return wrong("the response holds no answer", **explanation)
    if text != reference:
        return wrong("another text", canonical_words(answer.text), method="text", **explanation)
    return accepted(canonical_words(answer.text), method="text", **explanation)


KIND = Kind(judge, VerifyItem("self-test", "exact", "The answer is Paris.", "paris"))
