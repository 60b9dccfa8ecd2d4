"""Kind `math`, through the service. Every line is a reference, a response, and the verdict that is right."""

from __future__ import annotations

import pytest

from potstill.contracts.verification import Verdict, VerifyItem
from tests.services.verifier.running import Background, Verifier

RIGHT, WRONG, NONE = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.UNDETERMINED

REPORTED = [  # by users of math-verify and of systems that use it
    (r"$\frac{1}{2004!}$", r"$\boxed{\frac{1}{2006!}}$", WRONG),
    ("1331 and 1728", r"so it is \boxed{1728}", WRONG),
    ("12", r"First I got \boxed{12}. On reflection that is wrong, so the answer is \boxed{13", WRONG),
    (r"\dfrac{9}{7}", r"\boxed{\frac{9}{7}}", RIGHT),
    (r"\boxed{\dfrac{\pi}{2}}", "The answer is pi/2", RIGHT),
    ("0.5", r"\boxed{50\%}", RIGHT),
    ("C", "The answer is (C).", RIGHT),
    ("7", "", WRONG),
    ("7", r"\boxed{}", WRONG),
    ("1234567", r"\boxed{1,234,567}", RIGHT),
    ("3", r"\boxed{3}", RIGHT),
    ("5", r"It could be \boxed{5}. No: \boxed{6}", WRONG),
    # Towers: no judgement, and no time spent.
    ("4", r"\boxed{\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}}", NONE),
    ("1", "The value is $10^{10^{10}}$.", NONE),
    ("1", r"\boxed{9!!!!}", NONE),
    ("1", r"\boxed{\binom{10^9}{10^8}}", NONE),
]
PLAIN_TEXT = [
    ("42", "The answer is 42.", RIGHT),
    ("42", "42", RIGHT),
    ("49", "42 + 7 = 49", RIGHT),
    ("42", "42 + 7 = 49", WRONG),
    ("42", "First 5, then 42", RIGHT),
    ("93", "The largest number is 93.", RIGHT),
    ("42", "The answer is **42**.", RIGHT),
    ("42", "**Answer:** 42", RIGHT),
    ("42", "The final answer is:\n\n42", RIGHT),
    ("72", "She sold 48/2 = 24 in May.\n#### 72", RIGHT),
    ("42", "The answer is not 5, it is 42", RIGHT),
    ("42", "The answer is 42 because 6 x 7 = 42, and 6 is even", RIGHT),
    ("12", "The answer is 12 apples, which weigh 42 kg", RIGHT),
    ("42", "The answer is 12 apples, which weigh 42 kg", WRONG),
    ("5", "It costs $42 and $5", RIGHT),
    ("42", "So, x=42.", RIGHT),
    ("42", "The value is $x = 42$.", RIGHT),
    ("-5", "The answer is -5", RIGHT),
    ("5", "The answer is -5", WRONG),
    ("42", "42km", RIGHT),
    ("20", "The total is 4 * 5 = 20 apples.", RIGHT),
    (r"\frac{\pi}{2}", "so we get pi/2", RIGHT),
    ("x^2+1", "x^2+1", RIGHT),
    ("1331 and 1728", "The numbers are 1331 and 1728.", RIGHT),
    ("12", "12 - that is all", RIGHT),
    # A calculation is not its result, and a part of an expression is no number.
    ("49", "42 + 7", WRONG),
    ("49", "42 + 7 =", WRONG),
    ("7", "42 + 7", WRONG),
    ("10", "The answer is 2^10.", WRONG),
    ("1024", "The answer is 2^10.", RIGHT),
    ("1024", r"\boxed{2¹⁰}", RIGHT),
    ("1/4", r"\boxed{2⁻²}", RIGHT),
    ("x^2+1", r"\boxed{x²+1}", RIGHT),
    ("4", r"\boxed{²}", WRONG),
    ("3", "so x^2 + 3", WRONG),
    ("2", r"The answer is \frac{1}{2}.", WRONG),
    ("12", "The answer is 1, 2", WRONG),
]
NUMBERS = [
    ("0.5", "1/2", RIGHT),
    (r"\frac12", r"\boxed{.5}", RIGHT),
    ("12,345", "12345", RIGHT),
    ("3.0", "3", RIGHT),
    ("1/3", r"\boxed{0.333333}", RIGHT),
    ("1/3", r"\boxed{0.33}", WRONG),
    ("0.0000001", "0.0000002", WRONG),
    ("1", r"\boxed{0.999999999}", WRONG),
    (r"\sqrt{2}", "1.414214", RIGHT),
    (r"\sqrt{2}", "1.41", WRONG),
    (r"2\frac12", r"\boxed{2.5}", RIGHT),
    ("6.02e23", r"\boxed{6.02 \times 10^{23}}", RIGHT),
    ("10!", r"\boxed{3628800}", RIGHT),
    ("10000000000000000000000000001", r"\boxed{10000000000000000000000000000}", WRONG),
    ("50", r"\boxed{50\%}", RIGHT),
    ("50%", "0.5", RIGHT),
    ("0.5", "0.5%", WRONG),
    ("0", r"\boxed{\frac{1}{2004!}}", WRONG),
    ("0", r"\boxed{\sqrt{2}+\sqrt{3}-\sqrt{5+2\sqrt{6}}}", RIGHT),
    ("-1", r"\boxed{e^{i\pi}}", RIGHT),
    ("2i", r"\boxed{(1+i)^2}", RIGHT),
    (r"12 \text{ cm}^2", r"\boxed{12}", RIGHT),
    (r"90^\circ", r"\boxed{90}", RIGHT),
    ("3t", r"\boxed{3}", WRONG),
]
EXPRESSIONS = [
    ("(x+1)^2", r"\boxed{x^2+2x+1}", RIGHT),
    ("(x+1)^2", r"\boxed{x^2+2x}", WRONG),
    (r"\frac{x}{2004!}", r"\boxed{\frac{x}{2006!}}", WRONG),
    ("1", r"\boxed{\sin^2 x + \cos^2 x}", RIGHT),
    ("|x|", r"\boxed{x}", WRONG),
    ("n!", r"\boxed{n(n-1)!}", RIGHT),
    ("0.5x", r"\boxed{\frac{x}{2}}", RIGHT),
    ("x=5", r"\boxed{5}", RIGHT),
    ("5", r"\boxed{x=5}", RIGHT),
    ("x=5", r"\boxed{y=5}", WRONG),
    ("x > 5", r"\boxed{5 < x}", RIGHT),
    ("x > 5", r"\boxed{x \geq 5}", WRONG),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\boxed{\begin{pmatrix}1\\2\end{pmatrix}}", RIGHT),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\boxed{\begin{pmatrix}1\\3\end{pmatrix}}", WRONG),
    (r"\sum_{i=1}^{3} i", r"\boxed{6}", RIGHT),
]
LISTS = [
    ("1331 and 1728", r"\boxed{1728, 1331}", RIGHT),
    ("1331 and 1728", r"\boxed{1331} and \boxed{1728}", RIGHT),
    ("6", r"\boxed{5} or \boxed{6}", WRONG),
    ("1,2", r"\boxed{1,2,3}", WRONG),
    ("1,2,3", r"\boxed{1,2}", WRONG),
    (r"\pm 3", r"\boxed{-3, 3}", RIGHT),
    (r"\pm 3", r"\boxed{3}", WRONG),
    ("(1,2)", r"\boxed{(2,1)}", WRONG),
    ("(3,1)", r"\boxed{(3,1)}", RIGHT),
    ("[1,2)", r"\boxed{[1,2]}", WRONG),
    (r"\{5\}", r"\boxed{5}", RIGHT),
]
WORDS_AND_CHOICES = [
    ("C", r"\boxed{\text{C}}", RIGHT),
    ("C", r"\boxed{C. 42}", RIGHT),
    ("C", "The correct option is C.", RIGHT),
    ("C", "Let's see. (B) no. (C) yes", RIGHT),
    ("B", "I choose B.", RIGHT),
    ("C", r"\boxed{D}", WRONG),
    ("A", "A triangle has three sides", WRONG),
    (r"\text{Thursday}", r"\boxed{thursday}", RIGHT),
    ("even", r"\boxed{\text{odd}}", WRONG),
    ("even", "It is not even", WRONG),
    ("No", "No.", RIGHT),
    ("xy", r"\boxed{yx}", RIGHT),
]
WRITTEN_OTHERWISE = [
    ("3/2", r"\boxed{1 \frac{1}{2}}", RIGHT),
    ("3/2", r"\boxed{1 1/2}", RIGHT),
    ("-3/2", r"\boxed{-1\frac12}", RIGHT),
    ("1000", r"\boxed{1\,000}", RIGHT),
    ("1000", r"\boxed{1{,}000}", RIGHT),
    ("12345", r"\boxed{12 345}", RIGHT),
    ("1/3", r"\boxed{0.\overline{3}}", RIGHT),
    ("31/30", r"\boxed{1.0\overline{3}}", RIGHT),
    ("1/3", r"\boxed{33.3333\%}", RIGHT),
    ("1/3", r"\boxed{33\%}", WRONG),
    ("0.5", r"\boxed{50 percent}", RIGHT),
    (r"\frac{\sqrt{2}}{2}", r"\boxed{1/sqrt(2)}", RIGHT),
    ("8", r"\boxed{2^(1+2)}", RIGHT),
    ("x+1", r"\boxed{x+1}", RIGHT),
]
SETS = [
    ("x > 5", r"\boxed{(5, \infty)}", RIGHT),
    (r"(5, \infty)", r"\boxed{x > 5}", RIGHT),
    (r"(5, \infty)", r"\boxed{x \ge 5}", WRONG),
    ("1 < x < 2", r"\boxed{(1,2)}", RIGHT),
    ("[1,2]", r"\boxed{x \in [1,2]}", RIGHT),
    (r"x \in [1,2]", r"\boxed{[1,2]}", RIGHT),
    ("1, 2", r"\boxed{x=1 \text{ or } x=2}", RIGHT),
    ("x=1 or x=2", r"\boxed{2, 1}", RIGHT),
    (r"(-\infty,1)\cup(2,\infty)", r"\boxed{(2,\infty)\cup(-\infty,1)}", RIGHT),
]
UNITS = [
    (r"5\text{ cm}", r"\boxed{5}", RIGHT),
    ("5", r"\boxed{5\text{ cm}}", RIGHT),
    (r"5\text{ cm}", r"\boxed{50\text{ mm}}", RIGHT),
    (r"5\text{ cm}", r"\boxed{5\text{ m}}", WRONG),
    (r"5\text{ m}", r"\boxed{5 m}", RIGHT),
    (r"1\text{ m}^2", r"\boxed{10000\text{ cm}^2}", RIGHT),
    (r"5\text{ cm}", r"\boxed{5\text{ kg}}", WRONG),
    ("2 hours", r"\boxed{120 minutes}", RIGHT),
    ("5 apples", r"\boxed{5}", RIGHT),
]
UNREADABLE = [
    ("7", r"\boxed{asdf \frac{}", WRONG),
    ("7", r"\boxed{7}. Wait, \boxed{", WRONG),
    ("", r"\boxed{5}", NONE),  # what is wrong with the reference is not held against the response
    (r"\frac{", r"\boxed{5}", NONE),
    ("1+y", r"\boxed{" + "(" * 300 + "1+x" + ")" * 300 + "}", NONE),
]


@pytest.mark.parametrize(
    ("reference", "response", "right"),
    [
        *REPORTED,
        *PLAIN_TEXT,
        *NUMBERS,
        *EXPRESSIONS,
        *LISTS,
        *WORDS_AND_CHOICES,
        *WRITTEN_OTHERWISE,
        *SETS,
        *UNITS,
        *UNREADABLE,
    ],
)
def test_the_verdict_is_right(verifier: Verifier, reference: str, response: str, right: Verdict) -> None:
    [result] = verifier.verify(VerifyItem("one", "math", response, reference))
    assert result.verdict == right, result
    assert result.score == {RIGHT: 1.0, WRONG: 0.0, NONE: None}[right]


@pytest.mark.parametrize(
    "equal",
    [
        ("0.5", "1/2", r"\frac12", r"\dfrac{2}{4}", r"50\%", "x = 0.5"),
        (r"\frac{\sqrt{2}}{2}", r"1/\sqrt2", r"\sqrt{0.5}", r"\sin(\pi/4)"),
        ("(x+1)^2", "x^2+2x+1"),
        ("1, 2", "2, 1", r"\{1, 2\}"),
        ("1234567", "1,234,567"),
        ("x > 5", "5 < x"),
        ("Thursday", r"\text{ thursday}"),
    ],
)
def test_equal_answers_share_one_text_right_or_wrong(verifier: Verifier, equal: tuple[str, ...]) -> None:
    for reference in (equal[0], "77"):
        results = verifier.verify(*(VerifyItem(a, "math", rf"\boxed{{{a}}}", reference) for a in equal))
        assert len({result.detail["answer"] for result in results}) == 1, results


def test_unequal_answers_share_no_text(verifier: Verifier) -> None:
    unequal = (
        "0.5",
        "0.50000001",
        r"\sqrt{2}",
        "x",
        "x+1",
        "5 cm",
        "5 kg",
        "(1, 2)",
        "[1, 2)",
        "9" * 300,
        "8" * 300,
        "7!",
    )
    results = verifier.verify(*(VerifyItem(a, "math", rf"\boxed{{{a}}}", "77") for a in unequal))
    assert len({result.detail["answer"] for result in results}) == len(unequal)


def test_verdicts_are_the_same_from_many_threads_at_once(verifier: Verifier) -> None:
    cases = [VerifyItem(str(i), "math", response, reference) for i, (reference, response, _) in enumerate(NUMBERS)]
    requests = [Background(lambda: verifier.verify(*cases)) for _ in range(8)]
    for request in requests:
        assert [result.verdict for result in request.result()] == [right for _, _, right in NUMBERS]
