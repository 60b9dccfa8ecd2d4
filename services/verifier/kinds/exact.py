"""Kind `exact`: the last answer equals the reference as text."""

from __future__ import annotations

from potstill.contracts.verification import VerifyItem
from services.verifier.answers.extraction import UnfinishedBoxError, stated_answer
from services.verifier.answers.text import normalized
from services.verifier.judgement import Judgement, accepted, undetermined, wrong
from services.verifier.kinds import Kind


def judge(item: VerifyItem) -> Judgement:
    """Compare the answer, or the last line where none is stated, without regard to case and spacing."""
    reference = normalized(item.reference or "")
    if not reference:
        return undetermined("the reference is empty")
    try:
        stated = stated_answer(item.response)
    except UnfinishedBoxError:
        return wrong("the last box is not finished", reference=item.reference)
    if stated is None:
        lines = item.response.strip().splitlines()
        source, answer = "last line", lines[-1].strip() if lines else ""
    else:
        source, answer = stated.source, stated.text
    if not normalized(answer):
        return wrong("the response holds no answer", source=source, reference=item.reference)
    if normalized(answer) != reference:
        return wrong("another text", answer=answer, source=source, reference=item.reference)
    return accepted(answer=answer, source=source, reference=item.reference)


KIND = Kind(judge, VerifyItem("self-test", "exact", "The answer is Paris.", "paris"))
