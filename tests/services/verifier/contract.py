"""What every kind of the verifier must do, whatever it judges. A kind has one entry in CONTRACTS."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from potstill.contracts.verification import VerifyItem, VerifyResult

MALFORMED = {
    "empty": "",
    "blank": " \n\t ",
    "binary": "".join(map(chr, range(256))) + "\x00\ud7ff\U0010ffff",
    "huge": "a b 1 { $ \\boxed " * 20_000,
    "open": r"\boxed{" * 2_000,
    "deep": r"\boxed{" + "(" * 5_000 + ")" * 5_000 + "}",
    "long number": r"\boxed{" + "7" * 100_000 + "}",
}


@dataclass(frozen=True)
class Contract:
    """Items of a kind: one that earns the full score, one that earns none, and what it cannot be asked."""

    right: VerifyItem
    wrong: VerifyItem
    refused: VerifyItem  # lacks what it is judged by: 422
    undecidable: VerifyItem | None = None  # what it is judged by is empty or broken: no score

    def malformed(self) -> list[VerifyItem]:
        return [msgspec.structs.replace(self.right, id=name, response=text) for name, text in MALFORMED.items()]


def by_reference(kind: str, response: str, reference: str, wrong: str) -> Contract:
    """The contract of a kind that compares with a reference."""
    return Contract(
        right=VerifyItem("right", kind, response, reference),
        wrong=VerifyItem("wrong", kind, wrong, reference),
        refused=VerifyItem("refused", kind, response),
        undecidable=VerifyItem("undecidable", kind, response, " "),
    )


CONTRACTS = {
    "math": by_reference("math", r"So \boxed{\frac{1}{2}}.", "0.5", r"So \boxed{\frac{1}{3}}."),
    "exact": by_reference("exact", "The answer is Paris.", "paris", "The answer is London."),
    "choice": by_reference("choice", "The answer is (C).", "C. Paris", "The answer is (D)."),
    "code": Contract(
        right=VerifyItem("right", "code", "print(input()[::-1])", tests=({"stdin": "ab", "stdout": "ba"},)),
        wrong=VerifyItem("wrong", "code", "print(input())", tests=({"stdin": "ab", "stdout": "ba"},)),
        refused=VerifyItem("refused", "code", "print(input()[::-1])"),
        undecidable=VerifyItem("undecidable", "code", "def f(): return 1", tests=({"code": "assert f("},)),
    ),
}


def check_result(result: VerifyResult) -> None:
    """A score is a finite number from 0 to 1, and is None exactly when the verdict is none; what is told is bounded."""
    assert (result.score is None) == (not result.verdict.is_score), result
    assert result.score is None or 0.0 <= result.score <= 1.0, result
    assert result.score is not None or result.detail["reason"], result
    assert len(msgspec.json.encode(result.detail)) < 16_384, result
