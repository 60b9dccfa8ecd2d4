"""Kind `math` on forms that nobody chose: equal ones are accepted, unequal ones refused, in either order."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from potstill.contracts.verification import Verdict, VerifyItem
from services.verifier.judgement import Judgement
from services.verifier.kinds import load
from tests.services.verifier.contract import CONTRACTS
from tests.services.verifier.running import Verifier

RIGHT, WRONG = Verdict.ACCEPTED, Verdict.WRONG_ANSWER
quick = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
parsing = settings(quick, max_examples=25)

rationals = st.builds(Fraction, st.integers(-(10**9), 10**9), st.integers(1, 10**4))
small = st.integers(1, 60)


def judged(reference: str, answer: str) -> Judgement:
    return load("math").judge(VerifyItem("one", "math", rf"So \boxed{{{answer}}}", reference))


def forms(value: Fraction) -> list[str]:
    """Ways to write a rational."""
    sign, top, bottom = "-" if value < 0 else "", abs(value.numerator), value.denominator
    written = [f"{sign}{top}/{bottom}", rf"{sign}\frac{{{top}}}{{{bottom}}}", rf"\frac{{{sign}{top}}}{{{bottom}}}"]
    written.append(rf"{sign}\dfrac{{{3 * top}}}{{{3 * bottom}}}")
    whole, rest = divmod(top, bottom)
    if whole and rest:
        written += [f"{sign}{whole} {rest}/{bottom}", rf"{sign}{whole}\frac{{{rest}}}{{{bottom}}}"]
    if 10**12 % bottom == 0:
        places = f"{top * 10**12 // bottom:013d}"
        decimal = f"{places[:-12]}.{places[-12:]}".rstrip("0").rstrip(".")
        written += [f"{sign}{decimal}", f"{sign}{int(places[:-12]):,}.{places[-12:]}"]
    if bottom == 1:
        separated = [f"{top:,}".replace(",", mark) for mark in (",", "{,}", r"\,", " ")]
        written += [str(value), *(sign + number for number in separated)]
        if value:
            written.append(rf"{sign}{top * 100}\%")
    return written


@quick
@given(value=rationals, data=st.data())
def test_every_form_of_a_rational_is_the_same_answer(value: Fraction, data: st.DataObject) -> None:
    one, other = (data.draw(st.sampled_from(forms(value))) for _ in range(2))
    results = judged(one, other), judged(other, one)
    assert [result.verdict for result in results] == [RIGHT, RIGHT], (one, other, results)
    assert {result.detail["answer"] for result in results} == {str(value)}


@quick
@given(value=rationals, other=rationals, data=st.data())
def test_unequal_rationals_are_refused_in_either_order(value: Fraction, other: Fraction, data: st.DataObject) -> None:
    if value in (other, other * 100, other / 100):
        return
    one, two = data.draw(st.sampled_from(forms(value))), data.draw(st.sampled_from(forms(other)))
    assert [judged(one, two).verdict, judged(two, one).verdict] == [WRONG, WRONG], (one, two)


@parsing
@given(a=small, b=st.integers(2, 40), c=small, data=st.data())
def test_every_form_of_a_radical_is_the_same_answer(a: int, b: int, c: int, data: st.DataObject) -> None:
    written = [
        rf"\frac{{{a}\sqrt{{{b}}}}}{{{c}}}",
        f"{a}*sqrt({b})/{c}",
        rf"\frac{{\sqrt{{{a * a * b}}}}}{{{c}}}",
        rf"\frac{{{a * b}}}{{{c}\sqrt{{{b}}}}}",
        rf"{a} \cdot {b}^{{1/2}} / {c}",
    ]
    one, other = (data.draw(st.sampled_from(written)) for _ in range(2))
    results = judged(one, other), judged(other, one)
    assert [result.verdict for result in results] == [RIGHT, RIGHT], (one, other, results)
    assert results[0].detail == results[1].detail
    unequal = rf"\frac{{{a}\sqrt{{{b}}}}}{{{c + 1}}}"
    assert [judged(one, unequal).verdict, judged(unequal, one).verdict] == [WRONG, WRONG], (one, unequal)


@parsing
@given(values=st.lists(st.integers(-50, 50), min_size=2, max_size=5, unique=True), data=st.data())
def test_lists_are_the_same_in_any_order_and_with_nothing_missing(values: list[int], data: st.DataObject) -> None:
    one, other = (", ".join(map(str, data.draw(st.permutations(values)))) for _ in range(2))
    fewer = ", ".join(map(str, values[:-1]))
    results = judged(one, other), judged(other, one)
    assert [result.verdict for result in results] == [RIGHT, RIGHT], (one, other)
    assert results[0].detail == results[1].detail
    assert [judged(one, fewer).verdict, judged(fewer, one).verdict] == [WRONG, WRONG], (one, fewer)


@quick
@given(text=st.text(max_size=300), reference=st.sampled_from(["42", "C", "Thursday", r"\frac{1}{2}"]))
def test_any_text_is_judged_and_always_the_same(text: str, reference: str) -> None:
    for name in set(CONTRACTS) & {"math", "exact", "choice"}:
        item = VerifyItem("one", name, text, reference)
        first, again = load(name).judge(item), load(name).judge(item)
        assert first == again
        assert (first.score is None) == (not first.verdict.is_score)


PIECES = r"\frac \sqrt { } ( ) [ ] ^ _ + - * / = , . ! % $ < > | \pi \text \boxed x y 1 2 10 0.5 & \\ and"
mathematics = st.lists(st.sampled_from(PIECES.split(" ")), max_size=14).map(" ".join)


@parsing
@given(text=mathematics)
def test_broken_mathematics_is_judged_and_always_the_same(text: str) -> None:
    first, again = judged("x+1", text), judged("x+1", text)
    assert first == again


@pytest.mark.parametrize("value", [Fraction(7, 8), Fraction(-22, 7), Fraction(1234567)])
def test_the_service_agrees_on_every_form(verifier: Verifier, value: Fraction) -> None:
    items = [VerifyItem(form, "math", rf"\boxed{{{form}}}", str(value)) for form in forms(value)]
    results = verifier.verify(*items)
    assert {result.verdict for result in results} == {RIGHT}, results
    assert {result.detail["answer"] for result in results} == {str(value)}
