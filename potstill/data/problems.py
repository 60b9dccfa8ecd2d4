"""Rows as problems: plain columns, or those that RL data sets share.

A plain row has the columns that the job's `DataSpec` names. A row with a `reward_model` column is read as
`data_source, prompt, ability, reward_model{style, ground_truth}, extra_info`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from potstill.contracts.job import DataSpec
from potstill.contracts.problem import Message, Problem
from potstill.contracts.verification import WIDE_INTEGER, holds_wide_integer
from potstill.data.errors import FILE, DataError
from potstill.data.rows import read_rows

ROLES = ("system", "user", "assistant")


def load_problems(source: str | Path, spec: DataSpec, *, verifiable: bool = True) -> list[Problem]:
    """Read every row of a file or hub data set, in its order; ids are unique. Raises DataError.

    `verifiable`: a row without reference and tests is an error. Without it such a row is a problem that has no verdict.
    """
    problems: list[Problem] = []
    known: set[str] = set()
    for numbered in read_rows(source):
        problem = problem_of(numbered.content(), spec, numbered.where, numbered.number)
        if verifiable and not problem.is_verifiable:
            raise DataError(
                spec.reference_column, f"{numbered.where} has neither a reference answer nor tests to verify it by"
            )
        if problem.id in known:
            raise DataError("id", f"{numbered.where}: {repeated_id(problem.id)}")
        known.add(problem.id)
        problems.append(problem)
    if not problems:
        raise DataError(FILE, f"{source} has no rows")
    return problems


def repeated_id(name: str) -> str:
    return f"the id {name!r} occurs twice; ids name problems in every evaluation"


def problem_of(row: dict[str, Any], spec: DataSpec, where: str, number: int) -> Problem:
    """One row. Raises DataError, which names the row by `where`."""
    verification = _shared_verification if isinstance(row.get("reward_model"), dict) else _plain_verification
    kind, reference, tests, function = verification(row, spec, where)
    if holds_wide_integer(tests):
        raise DataError("tests", f"{where}: {WIDE_INTEGER}")
    return Problem(
        id=_text(row, "id", where) or f"{number:06d}",
        prompt=_prompt(row, spec.prompt_column, where),
        kind=kind,
        reference=reference,
        solution=_own_or_extra(row, spec.solution_column, where),
        teacher=_own_or_extra(row, spec.teacher_column, where),
        data_source=_text(row, "data_source", where) or "",
        tests=tests,
        function=function,
    )


Verification = tuple[str, str | None, tuple[dict[str, Any], ...], str | None]


def _plain_verification(row: dict[str, Any], spec: DataSpec, where: str) -> Verification:
    tests = row.get("tests") or []
    if not isinstance(tests, list) or not all(isinstance(test, dict) for test in tests):
        raise DataError("tests", f"{where}: tests are a list of objects")
    kind = _text(row, "kind", where) or spec.kind
    return kind, _text(row, spec.reference_column, where), tuple(tests), _text(row, "function", where)


def _shared_verification(row: dict[str, Any], spec: DataSpec, where: str) -> Verification:
    truth = row["reward_model"].get("ground_truth")
    if truth is None:
        raise DataError("reward_model", f"{where}: reward_model has no ground_truth")
    kind = {"math": "math", "code": "code"}.get(str(row.get("ability") or "").lower(), spec.kind)
    if kind != "code":
        return kind, str(truth), (), None
    return "code", None, *_code_tests(truth, where)


def _code_tests(truth: Any, where: str) -> tuple[tuple[dict[str, Any], ...], str | None]:
    """Tests in the form `{inputs, outputs, fn_name}`, which code data sets keep as a JSON string."""
    try:
        document = msgspec.json.decode(truth, type=dict[str, Any]) if isinstance(truth, str) else dict(truth)
        inputs, outputs = list(document["inputs"]), list(document["outputs"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        message = f"{where}: ground_truth of a code row holds inputs and outputs, as an object or its JSON ({error!r})"
        raise DataError("reward_model", message) from error
    if len(inputs) != len(outputs):
        raise DataError("reward_model", f"{where}: {len(inputs)} inputs but {len(outputs)} outputs")
    function = document.get("fn_name")
    first, second = ("arguments", "expected") if function else ("stdin", "stdout")
    return tuple({first: a, second: b} for a, b in zip(inputs, outputs, strict=True)), function


def _prompt(row: dict[str, Any], column: str, where: str) -> tuple[Message, ...]:
    value = row.get(column)
    if isinstance(value, str) and value:
        return (Message("user", value),)
    if value in (None, "", []):
        raise DataError(column, f"{where} has no {column!r}; the columns there are {sorted(row)}")
    try:
        messages = tuple(msgspec.convert(value, list[Message]))
    except msgspec.ValidationError as error:
        raise DataError(column, f"{where}: a prompt is a text or a list of role and content ({error})") from error
    if unknown := [message.role for message in messages if message.role not in ROLES]:
        raise DataError(column, f"{where}: role {unknown[0]!r} is none of {', '.join(ROLES)}")
    return messages


def _text(row: dict[str, Any], column: str, where: str) -> str | None:
    """A text, or a number as people write answers; None when the row has no such column."""
    value = row.get(column)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise DataError(column, f"{where}: {column!r} is a {type(value).__name__}, not a text")


def _own_or_extra(row: dict[str, Any], column: str, where: str) -> str | None:
    """A column of the row, else of its `extra_info`, where shared data sets keep what is their own."""
    extra = row.get("extra_info")
    own = _text(row, column, where)
    return own if own is not None or not isinstance(extra, dict) else _text(extra, column, f"{where}, extra_info")
