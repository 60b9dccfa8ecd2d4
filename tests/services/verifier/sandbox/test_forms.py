"""The forms of a test, which part of a response is the program, and what comes back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from potstill.contracts import wire
from potstill.contracts.verification import Limits, Verdict, VerifyItem, VerifyRequest
from services.verifier.sandbox.cases import plain_assertion
from services.verifier.sandbox.comparison import same_output, same_value
from services.verifier.sandbox.extraction import program_of
from tests.services.verifier.running import Verifier
from tests.services.verifier.sandbox.programs import SUM, function, judge, returns, script

ACCEPTED, WRONG = Verdict.ACCEPTED, Verdict.WRONG_ANSWER

SCRIPTS = {
    "input and print": ("a, b = map(int, input().split())\nprint(a + b)", "1 2\n", "3", ACCEPTED),
    "all of standard input": ("import sys\nprint(sum(map(int, sys.stdin)))", "1\n2\n3\n", "6\n", ACCEPTED),
    "bytes": ("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", "abc", "cba", ACCEPTED),
    "descriptors": ("import os\nos.write(1, os.read(0, 99).upper())", "abc", "ABC", ACCEPTED),
    "open(0)": ("print(open(0).read().split())", "a b", "['a', 'b']", ACCEPTED),
    "a guarded main": ("if __name__ == '__main__':\n    print('x')", "", "x", ACCEPTED),
    "a deep recursion in a thread": (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 26)\n"
        "def depth(n): return n if n == 50000 else depth(n + 1)\n"
        "t = threading.Thread(target=lambda: print(depth(0)))\nt.start()\nt.join()",
        "",
        "50000",
        ACCEPTED,
    ),
    "a larger stack": (
        "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (2**27, -1))\nprint('x')",
        "",
        "x",
        ACCEPTED,
    ),
    "output at exit": ("import atexit\natexit.register(print, 'x')", "", "x", ACCEPTED),
    "output of a thread that is not joined": (
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('x'))).start()",
        "",
        "x",
        ACCEPTED,
    ),
    "sys.exit after the output": ("import sys\nprint('x')\nsys.exit()", "", "x", ACCEPTED),
    "a standard output that is closed": ("import sys\nprint('x')\nsys.stdout.close()", "", "x", ACCEPTED),
    "a standard output that is gone": ("import sys\nprint('x')\nsys.stdout.flush()\ndel sys.stdout", "", "x", ACCEPTED),
    "other text": ("print('Grüße, 世界')", "", "Grüße, 世界", ACCEPTED),
    "space at ends of lines": ("print('a ')\nprint('b\\t')\nprint()", "", "a\nb", ACCEPTED),
    "another spelling of numbers": ("print(0.50, 1e3)", "", "0.5 1000", ACCEPTED),
    "a status of failure": ("import sys\nprint('x')\nsys.exit(3)", "", "x", Verdict.RUNTIME_ERROR),
    "an error after the output": ("print('x')\n1/0", "", "x", Verdict.RUNTIME_ERROR),
    "more than asked": ("print('x')\nprint('y')", "", "x", WRONG),
    "less than asked": ("print('x')", "", "x\ny", WRONG),
    "nothing": ("pass", "", "x", WRONG),
    "nothing where nothing is expected": ("pass", "", "", ACCEPTED),
    "reads past the end": ("input()\ninput()", "x\n", "", Verdict.RUNTIME_ERROR),
    "a module of the library": ("import numpy as np\nprint(np.arange(4).sum())", "", "6", ACCEPTED),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_programs_that_read_and_print(verifier: Verifier, name: str) -> None:
    source, stdin, stdout, verdict = SCRIPTS[name]
    result = judge(verifier, script(source, stdin, stdout))
    assert result.verdict == verdict, result


def test_random_numbers_differ_from_run_to_run_and_orders_of_sets_do_not(verifier: Verifier) -> None:
    source = "import random\nprint(random.random(), {'a', 'b', 'c', 'd', 'e'})"
    printed = [judge(verifier, script(source, "", "never")).detail["tests"][0]["printed"] for _ in range(6)]
    assert len({line.split(" ", 1)[0] for line in printed}) == 6
    assert len({line.split(" ", 1)[1] for line in printed}) == 1


CALLS = {
    "a function": ("def f(a, b): return a + b", [1, 2], 3, ACCEPTED),
    "a method": ("class Solution:\n    def f(self, a, b): return a * b", [3, 4], 12, ACCEPTED),
    "a method and its helpers": (
        "class Solution:\n    def __init__(self): self.n = 2\n    def g(self, a): return a * self.n\n"
        "    def f(self, a): return self.g(a)",
        [4],
        8,
        ACCEPTED,
    ),
    "printing is not returning": ("def f(): print(3)", [], 3, WRONG),
    "printing meanwhile": ("def f():\n    print('debug')\n    return 3", [], 3, ACCEPTED),
    "a tuple for a list": ("def f(): return (1, (2, 3))", [], [1, [2, 3]], ACCEPTED),
    "a set for a list": ("def f(): return {1}", [], [1], WRONG),
    "text for a number": ("def f(): return '3'", [], 3, WRONG),
    "a float for an integer": ("def f(): return 3.0", [], 3, ACCEPTED),
    "nothing": ("def f(): return None", [], None, ACCEPTED),
    "nothing by chance": ("def f(): pass", [], 0, WRONG),
    "a dictionary": ("def f(): return {'a': [1, {'b': None}]}", [], {"a": [1, {"b": None}]}, ACCEPTED),
    "a counter": ("from collections import Counter\ndef f(s): return Counter(s)", ["aab"], {"a": 2, "b": 1}, ACCEPTED),
    "integer keys": ("def f(): return {1: 2}", [], {"1": 2}, ACCEPTED),
    "numpy": ("import numpy as np\ndef f(): return np.arange(3)", [], [0, 1, 2], ACCEPTED),
    "text of all kinds": ("def f(s): return s[::-1]", ["世界 \x00 \u2028"], "\u2028 \x00 界世", ACCEPTED),
    "an argument that it changes": ("def f(x):\n    x.append(1)\n    return x", [[0]], [0, 1], ACCEPTED),
    "an error": ("def f(): return 1 / 0", [], 0, Verdict.RUNTIME_ERROR),
    "wrong arguments": ("def f(a): return a", [1, 2], 1, Verdict.RUNTIME_ERROR),
    "another name": ("def g(): return 1", [], 1, WRONG),
    "an error while it is loaded": ("1 / 0\ndef f(): return 1", [], 1, Verdict.RUNTIME_ERROR),
    "a demonstration that is guarded": (
        "def f(): return 1\nif __name__ == '__main__':\n    while True: pass",
        [],
        1,
        ACCEPTED,
    ),
    "typing of the starter code": (
        "from typing import *\nclass Solution:\n    def f(self, x: List[int]) -> Optional[int]: return max(x)",
        [[3, 1]],
        3,
        ACCEPTED,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_are_called_and_compared_outside(verifier: Verifier, name: str) -> None:
    source, arguments, expected, verdict = CALLS[name]
    result = judge(verifier, returns(source, "f", arguments, expected))
    assert result.verdict == verdict, result


HUMAN_EVAL_PROMPT = '''from typing import List


def double_all(numbers: List[int]) -> List[int]:
    """ Double each.
    >>> double_all([1, 2])
    [2, 4]
    """
'''
HUMAN_EVAL_TEST = """

METADATA = {'author': 'x'}


def check(candidate):
    assert candidate([1, 2]) == [2, 4]
    assert candidate([]) == []
    for n in range(50):
        assert candidate([n]) == [2 * n], "some message"
    assert abs(candidate([0.5])[0] - 1.0) < 1e-6
"""


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        (
            "```python\ndef double_all(numbers: List[int]) -> List[int]:\n    return [2 * n for n in numbers]\n```",
            ACCEPTED,
        ),
        ("    return [2 * n for n in numbers]\n", ACCEPTED),
        ("```python\n    return [2 * n for n in numbers]\n```", ACCEPTED),
        ("    return [n for n in numbers]\n", WRONG),
        ("    return None\n", WRONG),
        ("    raise ValueError('x')\n", WRONG),
        ("    return [2 * n for n in numbers\n", Verdict.COMPILE_ERROR),
        ("    while True: pass\n", Verdict.TIME_LIMIT),
        ("    import os\n    os._exit(0)\n", WRONG),
        ("    import sys\n    sys.exit(3)\n", WRONG),
        ("    return bytearray(1 << 40)\n", Verdict.MEMORY_LIMIT),
    ],
)
def test_check_functions_run_apart_from_the_program(verifier: Verifier, response: str, verdict: Verdict) -> None:
    test = {"code": HUMAN_EVAL_TEST, "prompt": HUMAN_EVAL_PROMPT}
    item = VerifyItem("a", "code", response, None, (test,), "double_all", Limits(wall_seconds=3, cpu_seconds=1))
    result = judge(verifier, item)
    expected = (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR) if "exit(3)" in response else (verdict,)
    assert result.verdict in expected, result
    assert result.detail["tests"][0]["separate_check"] is True


def test_helpers_of_a_prompt_are_there_for_the_test_and_the_program(verifier: Verifier) -> None:
    prompt = 'def twice(x):\n    return 2 * x\n\n\ndef four_times(x):\n    """Use twice."""\n'
    test = {"code": "def check(candidate):\n    assert candidate(3) == twice(twice(3))", "prompt": prompt}
    item = VerifyItem("a", "code", "    return twice(twice(x))", None, (test,), "four_times")
    assert judge(verifier, item).verdict == ACCEPTED


ASSERTIONS = [
    ("assert f(1, [2]) == (3, {4})", True),
    ("assert f('a') == -1.5", True),
    ("assert f(1) == f(1)", False),
    ("assert f(x=1) == 1", False),
    ("assert not f(1)", False),
    ("assert f(1) == 1, 'message'", True),
    ("assert g.f(1) == 1", False),
    ("assert abs(f(1) - 1) < 1", False),
    ("x = 1\nassert f(1) == 1", False),
    ("assert f(" + "[" * 500 + "]" * 500 + ") == 1", False),
    ("not python at all (", False),
]


@pytest.mark.parametrize(("code", "plain"), ASSERTIONS, ids=range(len(ASSERTIONS)))
def test_only_plain_assertions_are_taken_apart(code: str, plain: bool) -> None:
    assert (plain_assertion(code) is not None) == plain


@pytest.mark.parametrize(
    ("code", "source", "verdict"),
    [
        ("assert f(2) == (2, 4)", "def f(x): return x, 2 * x", ACCEPTED),
        ("assert f(2) == (2, 4)", "def f(x): return [x, 2 * x]", WRONG),
        ("assert f(2) == {2, 4}", "def f(x): return {4, 2}", ACCEPTED),
        ("import math\nassert math.isclose(f(2), 0.3, rel_tol=1e-3)", "def f(x): return 0.1 + 0.2", ACCEPTED),
        ("assert set(f(2)) == {1, 2}", "def f(x): return [2, 1, 1]", ACCEPTED),
        ("assert f(x=2)['a'] == b'z'", "def f(x): return {'a': b'z'}", ACCEPTED),
        ("try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass", "def f(x): raise ValueError(x)", ACCEPTED),
        ("try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass", "def f(x): return x", WRONG),
        ("assert f(1).value == 3", "class R: value = 3\ndef f(x): return R()", WRONG),
        ("assert f(", "def f(x): return 1", Verdict.UNDETERMINED),
        ("assert all(f(g(i)) == i for i in range(20))", "def f(x): return x - 1\ndef g(x): return x + 1", ACCEPTED),
        ("assert f(1) == 1", "def f(x): return x == 1", ACCEPTED),
        (f"assert f(100) == {7**100}", "def f(n): return 7 ** n", ACCEPTED),
        ("assert f(1) == (1j, b'a', -0.0)", "def f(n): return 1j, b'a', 0.0", ACCEPTED),
    ],
)
def test_assertions(verifier: Verifier, code: str, source: str, verdict: Verdict) -> None:
    result = judge(verifier, function(source, None, {"code": code}))
    assert result.verdict == verdict, result
    assert (result.score is None) == (verdict == Verdict.UNDETERMINED)


def test_a_failed_test_ends_an_item_unless_all_are_asked_for(verifier: Verifier) -> None:
    tests = [{"arguments": [i], "expected": i if i != 2 else -1} for i in range(12)]
    early = judge(verifier, function("def f(x): return x", "f", *tests))
    verdicts = [test["verdict"] for test in early.detail["tests"]]
    assert verdicts[:3] == ["accepted", "accepted", "wrong_answer"]
    assert verdicts[-1] == "not_run"
    whole = judge(verifier, function("def f(x): return x", "f", *tests, stop_early=False))
    assert (whole.verdict, whole.detail["passed"], whole.detail["total"]) == (WRONG, 11, 12)
    assert "not_run" not in [test["verdict"] for test in whole.detail["tests"]]


def test_the_first_failure_in_order_is_the_verdict(verifier: Verifier) -> None:
    source = "import time\ndef f(x):\n    if x == 1:\n        time.sleep(0.5)\n        raise ValueError\n    return 0"
    tests = [{"arguments": [i], "expected": i} for i in range(4)]
    result = judge(verifier, function(source, "f", *tests, stop_early=False))
    assert [t["verdict"] for t in result.detail["tests"]] == [
        "accepted",
        "runtime_error",
        "wrong_answer",
        "wrong_answer",
    ]
    assert result.verdict == Verdict.RUNTIME_ERROR


def test_a_test_says_what_it_used(verifier: Verifier) -> None:
    source = "x = bytearray(50 * 2**20)\nfor i in range(10**6): pass\nprint(1)"
    [test] = judge(verifier, script(source, "", "1")).detail["tests"]
    assert test["cpu_seconds"] > 0.01
    assert test["wall_seconds"] > 0.01
    assert 50 * 2**20 < test["peak_bytes"] < 150 * 2**20


def test_numbers_may_be_off_by_a_tolerance_that_is_given(verifier: Verifier) -> None:
    near = {"arguments": [], "expected": 0.333, "tolerance": 1e-2}
    assert judge(verifier, function("def f(): return 1 / 3", "f", near)).verdict == ACCEPTED
    exact = {"arguments": [], "expected": 0.333}
    assert judge(verifier, function("def f(): return 1 / 3", "f", exact)).verdict == WRONG


RESPONSES = [
    ("print(1)", "print(1)"),
    ("a\n```python\nx\n```\nb\n```python\ny\n```\n", "y\n"),
    ("```python\nx\n```\nOutput:\n```\n3\n```", "x\n"),
    ("```\nx\n```\nInput:\n```text\n3\n```", "x\n"),
    ("```cpp\nint main\n```", "int main\n"),
    ("```py\nx\n``", "x\n``\n"),
    ("```python\nx\n", "x\n"),
    ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
    ("~~~python\nx\n~~~", "x\n"),
    ("1. So:\n   ```python\n   def f():\n       return 1\n   ```", "def f():\n    return 1\n"),
    ("```Python3\nx\n```", "x\n"),
    ("```python title=a.py\nx\n```", "x\n"),
    ("use `x` and ``y``", "use `x` and ``y``"),
]


@pytest.mark.parametrize(("response", "program"), RESPONSES, ids=range(len(RESPONSES)))
def test_which_part_of_a_response_is_the_program(response: str, program: str) -> None:
    assert program_of(response) == program


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("1 2", "1  2", True),
        ("１２", "12", False),
        ("١٢", "12", False),
        ("1\n2", "1 2", False),
        ("\n1", "1", False),
        ("nan", "NaN", False),
        ("1_0", "10", False),
        ("1" * 5000, "1" * 4999 + "2", False),
        ("Yes", "yes", False),
        ("+5", "5", True),
        ("1e999999999", "2", False),
        ("0x10", "16", False),
    ],
)
def test_what_counts_as_the_same_output(printed: str, expected: str, same: bool) -> None:
    assert same_output(printed, expected) == same


@pytest.mark.parametrize(
    ("returned", "expected", "same"),
    [
        (True, 1, True),
        ([1, 2], [1, 2, 3], False),
        ({"1": 1, 1: 1}, {"1": 1}, True),
        (float("inf"), 10**400, False),
        (10**400, 1.5, False),
        (b"a", "a", False),
        (None, False, False),
        ({}, [], False),
    ],
)
def test_what_counts_as_the_same_value(returned: Any, expected: Any, same: bool) -> None:
    assert same_value(returned, expected) == same
    same_value(returned, expected, tolerance=1e-6)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"tests": ()}, "there are none"),
    ({"tests": ({"stdin": "x"},)}, "stdout"),
    ({"tests": ({"input": "x", "output": "y"},)}, "stdin and stdout, or"),
    ({"tests": ({"arguments": [1], "expected": 1},), "function": None}, "`function`"),
    ({"tests": ({"stdin": "x", "stdout": "y", "tolerence": 1},)}, "tolerence"),
    ({"tests": ({"stdin": 1, "stdout": "y"},)}, "str"),
    ({"tests": ({"stdin": "x", "stdout": "y", "tolerance": -1.0},)}, ">= 0.0"),
    ({"limits": Limits(wall_seconds=1e6)}, "wall_seconds must be above 0 and at most"),
    ({"limits": Limits(memory_bytes=-1)}, "memory_bytes must be above 0"),
]


@pytest.mark.parametrize(("changes", "says"), BAD, ids=range(len(BAD)))
def test_tests_that_cannot_be_run_are_refused_with_the_reason(verifier: Verifier, changes: Any, says: str) -> None:
    refused = verifier.post([SUM, msgspec.structs.replace(SUM, **changes)])
    assert refused.status_code == 422, refused.text
    [error] = refused.json()["errors"]
    assert error["field"].startswith("items.1.")
    assert says in error["message"]


def test_an_integer_that_no_message_carries_is_refused_and_test_code_takes_it(verifier: Verifier) -> None:
    item = returns("def f(x): return 10**x", "f", [30], 1)
    body = wire.encode(VerifyRequest((item,)), media_type=wire.JSON).replace(
        b'"expected":1', b'"expected":1' + b"0" * 30
    )
    refused = verifier.http.post("/v1/verify", content=body, headers={"content-type": wire.JSON})
    assert (refused.status_code, refused.json()["code"]) == (422, "malformed_tests")
    assert "more than 64 bits" in refused.json()["detail"]
    code = {"code": f"assert f(30) == {10**30}"}
    assert judge(verifier, function("def f(x): return 10**x", "f", code)).verdict == ACCEPTED


def test_a_request_with_too_many_tests_is_refused(verifier: Verifier) -> None:
    assert verifier.post([msgspec.structs.replace(SUM, tests=SUM.tests * 5000)]).status_code == 413
