"""Kind `math`: the last answer has the value of the reference.

Cheap and exact tests come first; sympy sees only what they cannot decide. See docs/verdicts.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from potstill.contracts.verification import VerifyItem
from services.verifier.answers import latex, precheck
from services.verifier.answers.canonical import canonical_answer, canonical_words
from services.verifier.answers.choice import choice_of, mentioned_choice, stated_choice
from services.verifier.answers.comparison import same, scaled
from services.verifier.answers.extraction import (
    Answer,
    UnfinishedBoxError,
    last_expression,
    last_line,
    reference_answer,
    stated_answer,
)
from services.verifier.answers.numbers import read_number, same_number
from services.verifier.answers.text import may_be_a_product, normalized, words_of
from services.verifier.answers.units import KNOWN, Measure, in_one_unit, split_unit, with_letter_unit
from services.verifier.judgement import Judgement, accepted, undetermined, wrong
from services.verifier.kinds import Kind

_CALCULATION = re.compile(r"[\d\s.,()]*\d[\d\s.,()]*(?:(?:[-+*/×÷−–]|\\times|\\cdot|\\div)[\d\s.,()]+)+")


@dataclass(frozen=True)
class Decision:
    """Whether two texts are the same answer, None where nobody can tell, how that was found, and why not."""

    same: bool | None
    method: str
    reason: str = ""


def judge(item: VerifyItem) -> Judgement:
    """Extract the answer and compare it with the reference. Trouble with the reference is never a wrong answer."""
    reference = reference_answer(item.reference or "")
    if not normalized(reference):
        return undetermined("the reference holds no answer", reference=item.reference)
    try:
        stated = stated_answer(item.response)
    except UnfinishedBoxError:
        return wrong("the last box is not finished", source="box", reference=reference)
    if stated is not None and not normalized(stated.text):
        return wrong("nothing stands where the answer should be", source=stated.source, reference=reference)
    letter = choice_of(reference)
    if letter is not None:
        chosen = stated_choice(stated.text) if stated is not None else mentioned_choice(item.response)
        if chosen is not None or stated is None:
            return _judge_choice(letter, chosen, stated)
    words = words_of(latex.bare(reference))
    if words is not None:
        answer = stated or last_line(item.response)
        if _same_words(answer.text, words) or not may_be_a_product(words):
            return _judge_words(words, answer)
    return _judge_value(latex.bare(reference), stated or last_expression(item.response))


def _judge_choice(letter: str, chosen: str | None, stated: Answer | None) -> Judgement:
    explanation = {"method": "choice", "reference": letter, "source": stated.source if stated else "last choice named"}
    if chosen is None:
        return wrong("the response chooses no letter", **explanation)
    explanation |= {"extracted": stated.text if stated else chosen, "read_as": chosen}
    if chosen == letter:
        return accepted(chosen, **explanation)
    return wrong("another choice", chosen, **explanation)


def _judge_words(words: str, answer: Answer) -> Judgement:
    shown: dict[str, Any] = {"method": "text", **_found(answer), "read_as": normalized(answer.text)}
    shown |= {"reference": words, "reference_read_as": normalized(words)}
    if not normalized(answer.text):
        return wrong("the response holds no answer", **shown)
    if _same_words(answer.text, words):
        return accepted(canonical_words(words), **shown)
    return wrong("another text", canonical_words(answer.text), **shown)


def _same_words(one: str, other: str) -> bool:
    return normalized(one).replace(" ", "") == normalized(other).replace(" ", "")


def _judge_value(reference: str, answer: Answer | None) -> Judgement:
    if answer is None:
        return wrong("the response holds no answer", reference=reference)
    gold, given, text = _sides(reference, answer)
    shown: dict[str, Any] = {
        **_found(answer),
        "read_as": _shown(given),
        "reference": reference,
        "reference_read_as": _shown(gold),
    }
    if not given.value:
        return wrong("nothing stands where the answer should be", **shown)
    numbers = read_number(gold.value), read_number(given.value)
    if answer.source != "box" and numbers[0] and not numbers[1] and _CALCULATION.fullmatch(text):
        return wrong("the calculation was not carried out", **shown)
    decision = _decide(gold, given)
    shown["method"] = decision.method
    if decision.same:
        return accepted(_canonical(gold), **shown)
    if decision.same is None:
        return undetermined(decision.reason, canonical_words(given.value), **shown)
    return wrong(decision.reason, _canonical(given), **shown)


def _sides(reference: str, answer: Answer) -> tuple[Measure, Measure, str]:
    """Both values, each without what the other leaves out: a left side, a unit."""
    text = latex.bare(_answer_text(answer, one_number=read_number(split_unit(reference).value) is not None))
    if not latex.is_relation(reference):
        text = latex.bare(latex.right_side(text))
    elif not latex.is_relation(text) or latex.is_membership(reference) != latex.is_membership(text):
        reference = latex.right_side(reference)
    gold, given = split_unit(reference), split_unit(text)
    if gold.unit and not given.unit:
        given = with_letter_unit(given.value, gold)
    elif given.unit and not gold.unit:
        gold = with_letter_unit(gold.value, given)
    return gold, given, text


def _answer_text(answer: Answer, one_number: bool) -> str:
    """Of prose, the mathematics in it; of several numbers that follow each other, the last, where one is asked for."""
    if not answer.runs:
        return answer.text
    run = answer.runs[0]
    return run.items[-1] if one_number and answer.source == "last expression" else run.text


def _decide(gold: Measure, given: Measure) -> Decision:
    """The first test that applies decides. Symmetric, but for texts that cannot be read."""
    factors = in_one_unit(gold, given)
    if factors is None:
        return Decision(False, "unit", "a unit of another kind")
    if _as_text(gold.value) == _as_text(given.value) and factors[0] == factors[1]:
        return Decision(True, "text")
    letters = choice_of(gold.value.upper()), choice_of(given.value.upper())
    if letters[0] is not None and letters[0] == letters[1]:
        return Decision(True, "choice")
    wanted, number = read_number(gold.value), read_number(given.value)
    if wanted is not None and number is not None:
        equal = same_number(wanted.times(factors[0]), number.times(factors[1]))
        return Decision(equal, "number", "" if equal else "another number")
    words = words_of(given.value)
    if words is not None and not may_be_a_product(words):
        return Decision(False, "text", "words where a value should be")
    return _decide_expressions(gold, given)


def _decide_expressions(gold: Measure, given: Measure) -> Decision:
    trouble = precheck.too_large(gold.value) or precheck.too_large(given.value)
    if trouble is not None:
        return Decision(None, "expression", trouble)
    try:
        wanted = latex.read_expression(gold.value)
    except latex.UnreadableError as error:
        return Decision(None, "expression", f"the reference could not be read as mathematics: {error}")
    try:
        answer = latex.read_expression(given.value)
    except latex.UnreadableError as error:
        return Decision(False, "expression", f"the answer could not be read as mathematics: {error}")
    factors = in_one_unit(gold, given)
    assert factors is not None
    equal = same(scaled(wanted, factors[0]), scaled(answer, factors[1]))
    return Decision(equal, "expression", "" if equal else "another value")


def _as_text(text: str) -> str:
    return "".join(text.replace(r"\dfrac", r"\frac").replace(r"\tfrac", r"\frac").split())


def _found(answer: Answer) -> dict[str, Any]:
    return {"extracted": answer.text, "source": answer.source, "at": answer.at}


def _shown(measure: Measure) -> str:
    return f"{measure.value} [{measure.unit}]" if measure.unit else measure.value


@lru_cache(maxsize=1024)
def _canonical(measure: Measure) -> str:
    words = words_of(measure.value)
    if words is not None and not may_be_a_product(words):
        return canonical_words(words)
    text = canonical_answer(measure.value)
    unit = f"{measure.unit}^{measure.power}" if measure.power != 1 else measure.unit
    return f"{text} {unit}" if measure.unit in KNOWN else text


KIND = Kind(judge, VerifyItem("self-test", "math", r"So the answer is \boxed{\frac{\pi}{2}}.", r"\pi \cdot 0.5"))
