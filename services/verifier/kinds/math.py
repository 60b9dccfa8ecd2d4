"""Kind `math`: the last answer has the value of the reference.

Cheap and exact tests come first; sympy sees only what they cannot decide. See docs/verdicts.md.
"""

from __future__ import annotations

import re
from typing import Any

from potstill.contracts.verification import VerifyItem
from services.verifier.answers import latex, precheck
from services.verifier.answers.choice import choice_of, mentioned_choice, stated_choice
from services.verifier.answers.comparison import same
from services.verifier.answers.extraction import (
    Answer,
    UnfinishedBoxError,
    last_expression,
    reference_answer,
    stated_answer,
)
from services.verifier.answers.numbers import PlainNumber, read_number, same_number
from services.verifier.answers.text import may_be_a_product, normalized, words_of
from services.verifier.judgement import Judgement, accepted, undetermined, wrong
from services.verifier.kinds import Kind

_CALCULATION = re.compile(r"[\d\s.,()]*\d[\d\s.,()]*(?:(?:[-+*/×÷−–]|\\times|\\cdot|\\div)[\d\s.,()]+)+")


def judge(item: VerifyItem) -> Judgement:
    """Extract the answer and compare it with the reference. Trouble with the reference is never a wrong answer."""
    reference = reference_answer(item.reference or "")
    if not normalized(reference):
        return undetermined("the reference holds no answer", reference=item.reference)
    try:
        stated = stated_answer(item.response)
    except UnfinishedBoxError:
        return wrong("the last box is not finished", reference=reference)
    if stated is not None and not normalized(stated.text):
        return wrong("nothing stands where the answer should be", source=stated.source, reference=reference)
    letter = choice_of(reference)
    if letter is not None:
        return _judge_choice(letter, stated, item.response)
    words = words_of(latex.bare(reference))
    if words is not None:
        judgement = _judge_words(words, stated, item.response)
        if judgement.score or not may_be_a_product(words):
            return judgement
    return _judge_value(latex.bare(reference), stated or last_expression(item.response))


def _judge_choice(letter: str, stated: Answer | None, response: str) -> Judgement:
    chosen = stated_choice(stated.text) if stated is not None else mentioned_choice(response)
    detail: dict[str, Any] = {"answer": chosen, "reference": letter, "method": "choice"}
    if chosen is None:
        return wrong("the response chooses no letter", **detail)
    return accepted(**detail) if chosen == letter else wrong("another choice", **detail)


def _judge_words(words: str, stated: Answer | None, response: str) -> Judgement:
    lines = response.strip().splitlines() or [""]
    answer = stated.text if stated is not None else lines[-1]
    detail: dict[str, Any] = {"answer": answer, "reference": words, "method": "text"}
    return accepted(**detail) if normalized(answer) == normalized(words) else wrong("another text", **detail)


def _judge_value(reference: str, answer: Answer | None) -> Judgement:
    if answer is None:
        return wrong("the response holds no answer", reference=reference)
    wanted = read_number(reference)
    text = _answer_text(answer, one_number=wanted is not None)
    if not latex.is_relation(reference):
        text = latex.right_side(text)
    text = latex.bare(text)
    detail: dict[str, Any] = {"answer": text, "source": answer.source, "reference": reference}
    if not text:
        return wrong("nothing stands where the answer should be", **detail)
    if normalized(text) == normalized(reference):
        return accepted(**detail, method="text")
    given = read_number(text)
    if wanted is not None and given is not None:
        return _judge_numbers(wanted, given, detail | {"method": "number"})
    if answer.source != "box" and wanted is not None and _CALCULATION.fullmatch(text):
        return wrong("the calculation was not carried out", **detail)
    return _judge_expressions(reference, text, detail | {"method": "expression"})


def _answer_text(answer: Answer, one_number: bool) -> str:
    """Of prose, the mathematics in it; of several numbers that follow each other, the last, where one is asked for."""
    if not answer.runs:
        return answer.text
    run = answer.runs[0]
    return run.items[-1] if one_number and answer.source == "last expression" else run.text


def _judge_numbers(wanted: PlainNumber, given: PlainNumber, detail: dict[str, Any]) -> Judgement:
    return accepted(**detail) if same_number(wanted, given) else wrong("another number", **detail)


def _judge_expressions(reference: str, text: str, detail: dict[str, Any]) -> Judgement:
    trouble = precheck.too_large(reference) or precheck.too_large(text)
    if trouble is not None:
        return undetermined(trouble, **detail)
    try:
        gold = latex.read_expression(reference)
    except latex.UnreadableError as error:
        return undetermined(f"the reference could not be read as mathematics: {error}", **detail)
    try:
        given = latex.read_expression(text)
    except latex.UnreadableError as error:
        return wrong(f"the answer could not be read as mathematics: {error}", **detail)
    return accepted(**detail) if same(gold, given) else wrong("another value", **detail)


KIND = Kind(judge, VerifyItem("self-test", "math", r"So the answer is \boxed{\frac{\pi}{2}}.", r"\pi \cdot 0.5"))
