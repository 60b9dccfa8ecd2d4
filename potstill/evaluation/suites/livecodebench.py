"""LiveCodeBench (arXiv 2403.07974): contest problems that read stdin, or fill in starter code.

The private tests are a pickled text. It is taken out of the pickle without running it: a pickle that holds anything
but one text is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import zlib
from typing import Any

from potstill.contracts.problem import Message, Problem
from potstill.data.hub import HubSource
from potstill.evaluation.suites.suite import PublishedSampling, Row, Suite, UnmappableRowError

STDIN = (
    "{question}\n\nRead the input from stdin and print the answer to stdout. Answer with the whole program in one "
    "Python code block."
)
STARTER = (
    "{question}\n\nUse this starter code, and answer with the whole program in one Python code block:\n\n"
    "```python\n{starter}\n```"
)
OF_A_TEXT = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}
TEXTS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}


def _read(row: Row) -> Problem:
    tests = _decoded(row["public_test_cases"]) + _private(row["private_test_cases"])
    if not tests:
        raise UnmappableRowError("the row has no tests")
    starter = (row.get("starter_code") or "").rstrip()
    function = _metadata(row).get("func_name")
    is_called = any(test.get("testtype") == "functional" for test in tests)
    if is_called and not (starter and function):
        raise UnmappableRowError("the row calls a function but has no starter code, or does not name it")
    asked = (STARTER if starter else STDIN).format(question=row["question_content"].strip(), starter=starter)
    return Problem(
        id=str(row["question_id"]),
        prompt=(Message("user", asked),),
        kind="code",
        tests=tuple(_called(test) if is_called else _piped(test) for test in tests),
        function=function if is_called else None,
    )


def _piped(test: Row) -> Row:
    return {"stdin": test["input"], "stdout": test["output"]}


def _called(test: Row) -> Row:
    """One argument a line, and the result, each as JSON."""
    try:
        arguments = [json.loads(line) for line in test["input"].splitlines() if line.strip()]
        return {"arguments": arguments, "expected": json.loads(test["output"])}
    except ValueError as error:
        raise UnmappableRowError("a test's values are no JSON") from error


def _decoded(cases: Any) -> list[Row]:
    return list(json.loads(cases)) if isinstance(cases, str) and cases else list(cases or ())


def _private(cases: Any) -> list[Row]:
    if not isinstance(cases, str) or cases.lstrip().startswith("["):
        return _decoded(cases)
    if not cases:
        return []
    try:
        return list(json.loads(_text_in(zlib.decompress(base64.b64decode(cases)))))
    except (ValueError, binascii.Error, zlib.error) as error:
        raise UnmappableRowError(f"the private tests cannot be read: {error}") from error


def _text_in(pickled: bytes) -> str:
    """The text that a pickle of one text holds. Raises ValueError for every other pickle."""
    texts = []
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name in TEXTS:
            texts.append(str(argument))
        elif operation.name not in OF_A_TEXT:
            raise ValueError(f"they are a pickle that does more than hold a text ({operation.name})")
    if len(texts) != 1:
        raise ValueError("they are a pickle of something else than one text")
    return texts[0]


def _metadata(row: Row) -> dict[str, Any]:
    found = row.get("metadata") or {}
    return dict(json.loads(found)) if isinstance(found, str) else dict(found)


SUITES = (
    Suite(
        "livecodebench",
        "LiveCodeBench",
        # The data set comes with a script, which current versions of the library do not run: these are its files.
        HubSource(
            "livecodebench/code_generation_lite",
            split="test",
            files=("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl"),
        ),
        ("question_id", "question_content", "starter_code", "public_test_cases", "private_test_cases", "metadata"),
        _read,
        published=(PublishedSampling("livecodebench", n=10, temperature=0.2, top_p=0.95, max_tokens=2000),),
    ),
)
