"""Kind `choice`: the response picks the option of the reference, by its letter or by its text."""

from __future__ import annotations

from typing import Any

from potstill.contracts.verification import VerifyItem
from services.verifier.answers.canonical import canonical_words
from services.verifier.answers.choice import Choice, mentioned_choice, read_choice, same_option
from services.verifier.answers.extraction import Answer, UnfinishedBoxError, last_line, reference_answer, stated_answer
from services.verifier.judgement import Judgement, accepted, undetermined, wrong
from services.verifier.kinds import Kind


def judge(item: VerifyItem) -> Judgement:
    """Compare letters where both sides have them, else the texts of the options. Several letters are a set."""
    wanted = read_choice(reference_answer(item.reference or ""))
    if wanted is None:
        return undetermined("the reference names no choice", reference=item.reference)
    explanation: dict[str, Any] = {"reference": item.reference or "", "reference_read_as": str(wanted)}
    try:
        answer = stated_answer(item.response) or _named(item.response)
    except UnfinishedBoxError:
        return wrong("the last box is not finished", source="box", **explanation)
    given = read_choice(answer.text)
    explanation |= {"extracted": answer.text, "source": answer.source, "at": answer.at}
    if given is None:
        return wrong("the response makes no choice", **explanation)
    explanation["read_as"] = str(given)
    if wanted.letters and given.letters:
        return _judgement(wanted, given, wanted.letters == given.letters, explanation | {"method": "letter"})
    if wanted.text and given.text:
        return _judgement(wanted, given, same_option(wanted.text, given.text), explanation | {"method": "text"})
    if wanted.letters:
        return wrong("the response names no letter", _canonical(given), **explanation)
    return undetermined("the reference has no letter, and the response only one", _canonical(given), **explanation)


def _named(response: str) -> Answer:
    line, letter = last_line(response), mentioned_choice(response)
    option = read_choice(line.text)
    if letter is None or (option is not None and option.letters):
        return line
    return Answer(letter, "last choice named", at=response.rfind(letter))


def _judgement(wanted: Choice, given: Choice, same: bool, explanation: dict[str, Any]) -> Judgement:
    if same:
        return accepted(_canonical(wanted), **explanation)
    return wrong("another choice", _canonical(given), **explanation)


def _canonical(choice: Choice) -> str:
    return choice.letters or canonical_words(choice.text)


KIND = Kind(judge, VerifyItem("self-test", "choice", "The answer is (B).", "B. Paris"))
