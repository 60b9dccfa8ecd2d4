"""Reading data sets: plain JSONL, or JSONL and Parquet in the columns that RL data sets share.

A plain row has the columns that the job's `DataSpec` names. A row with a `reward_model` column is read as
`data_source, prompt, ability, reward_model{style, ground_truth}, extra_info`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from potstill.contracts.job import DataSpec
from potstill.contracts.problem import Message, Problem

FILE = "file"  # the field of errors that are about the whole file
ROLES = ("system", "user", "assistant")


class DataError(ValueError):
    """A data file cannot be used. `field` is a column or `file`; `message` names the file, the row and the fix."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self.message = field, message


def load_problems(path: Path, spec: DataSpec) -> list[Problem]:
    """Read every row of a `.jsonl` or `.parquet` file, in file order; ids are unique. Raises DataError."""
    if not path.is_file():
        raise DataError(FILE, f"{path} does not exist or is not a file")
    problems: list[Problem] = []
    known: set[str] = set()
    for number, row in _rows(path):
        where = f"{path.name}, row {number}"
        problem = _problem(row, spec, where, number)
        if problem.id in known:
            raise DataError("id", f"{where}: the id {problem.id!r} occurs twice; ids name problems in every evaluation")
        known.add(problem.id)
        problems.append(problem)
    if not problems:
        raise DataError(FILE, f"{path} has no rows")
    return problems


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows with their number, from 1: the line in JSONL, the row in Parquet."""
    if path.suffix == ".parquet":
        yield from enumerate(_parquet_rows(path), start=1)
        return
    if path.suffix not in (".jsonl", ".json"):
        raise DataError(FILE, f"{path} is neither .jsonl nor .parquet")
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield number, msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise DataError(FILE, f"{path.name}, row {number} is not a JSON object: {error}") from error


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        message = f"{path} needs pyarrow: pip install 'potstill[parquet]', or convert the file to JSONL"
        raise DataError(FILE, message) from error
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                yield from batch.to_pylist()
    except (arrow.ArrowException, OSError) as error:
        raise DataError(FILE, f"{path} is not a readable Parquet file: {error}") from error


def _problem(row: dict[str, Any], spec: DataSpec, where: str, number: int) -> Problem:
    verification = _shared_verification if isinstance(row.get("reward_model"), dict) else _plain_verification
    kind, reference, tests, function = verification(row, spec, where)
    if reference is None and not tests:
        raise DataError(spec.reference_column, f"{where} has neither a reference answer nor tests to verify it by")
    return Problem(
        id=_text(row, "id", where) or f"{number:06d}",
        prompt=_prompt(row, spec.prompt_column, where),
        kind=kind,
        reference=reference,
        solution=_text(row, spec.solution_column, where),
        teacher=_text(row, spec.teacher_column, where),
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
