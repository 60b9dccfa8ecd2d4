"""HumanEval+ and MBPP+ of EvalPlus (arXiv 2305.01210). A task is one test: the data set's own test code."""

from __future__ import annotations

from potstill.contracts.problem import Message, Problem
from potstill.data.hub import HubSource
from potstill.evaluation.suites.suite import PublishedSampling, Row, Suite, UnmappableRowError

GREEDY = (PublishedSampling("evalplus", n=1, temperature=0.0, max_tokens=768),)
COMPLETE = (
    "Complete the following Python function. Answer with the whole program in one Python code block.\n\n"
    "```python\n{prompt}\n```"
)
WRITE = (
    "{prompt}\n\nYour program should pass this test:\n\n```python\n{test}\n```\n\n"
    "Answer with the whole program in one Python code block."
)


def _read_humaneval(row: Row) -> Problem:
    """The test defines `check(candidate)`; what the prompt defines beside the function stays defined."""
    return Problem(
        id=str(row["task_id"]),
        prompt=(Message("user", COMPLETE.format(prompt=row["prompt"].strip())),),
        kind="code",
        tests=({"code": row["test"], "prompt": row["prompt"]},),
        function=row["entry_point"],
    )


def _read_mbpp(row: Row) -> Problem:
    """The test calls the function by its name, which the task tells by one of its assertions."""
    if not row["test_list"]:
        raise UnmappableRowError("the row has no assertion that names its function")
    asked = WRITE.format(prompt=str(row["prompt"]).strip(), test=str(row["test_list"][0]).strip())
    return Problem(
        id=f"mbpp/{row['task_id']}", prompt=(Message("user", asked),), kind="code", tests=({"code": row["test"]},)
    )


SUITES = (
    Suite(
        "humaneval+",
        "HumanEval+",
        HubSource("evalplus/humanevalplus", split="test"),
        ("task_id", "prompt", "entry_point", "test"),
        _read_humaneval,
        published=GREEDY,
    ),
    Suite(
        "mbpp+",
        "MBPP+",
        HubSource("evalplus/mbppplus", split="test"),
        ("task_id", "prompt", "test_list", "test"),
        _read_mbpp,
        published=GREEDY,
    ),
)
