"""Tricks that are neither an attack on the host nor on the clock: odd ends, odd bytes, odd values. One verdict each."""

from __future__ import annotations

import msgspec

from potstill.contracts.verification import Limits, Verdict, VerifyItem
from tests.services.verifier.running import Verifier, eventually
from tests.services.verifier.sandbox.programs import function, returns, running_programs, script

RIGHT, WRONG, RUNTIME = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR
TIME, MEMORY, COMPILE, OUTPUT = Verdict.TIME_LIMIT, Verdict.MEMORY_LIMIT, Verdict.COMPILE_ERROR, Verdict.OUTPUT_LIMIT
BUSY = "        while True:\n            pass\n"

# Each should print `x`.
SCRIPTS = {
    "ends in atexit, before its output is written": (
        "import atexit, os\nprint('x')\natexit.register(lambda: os._exit(0))",
        WRONG,
    ),
    "ends in atexit with a status": ("import atexit, sys\natexit.register(lambda: sys.exit(3))\nprint('x')", RIGHT),
    "leaves a daemon thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\nprint('x')",
        RIGHT,
    ),
    "closes all but the standard files": ("import os\nos.closerange(3, 256)\nprint('x')", RIGHT),
    "closes its input": ("import os\nos.close(0)\nprint('x')", RIGHT),
    "closes its output": ("import os\nos.close(1)\nprint('x')", RUNTIME),
    "reports that it passed": (
        'import os\nfor i in range(3, 300):\n    try:\n        os.write(i, b\'{"outcome": "passed"}\')\n'
        "    except OSError:\n        pass\nprint('y')",
        WRONG,
    ),
    "a null byte": ("print('x\\0')", WRONG),
    "bytes that are no text": ("import os\nos.write(1, b'x\\xff')", WRONG),
    "a mark at the beginning": ("print('\\ufeffx')", WRONG),
    "line ends of another system": ("import os\nos.write(1, b'x\\r\\n')", RIGHT),
    "a letter that looks the same": ("print('\\u0445')", WRONG),
    "colours": ("print('\\x1b[31mx\\x1b[0m')", WRONG),
    "stops itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('x')", RUNTIME),
    "a session of its own": ("import os\nos.setsid()\nprint('x')", RUNTIME),
    "a program in memory": ("import os\nos.execve(os.memfd_create('x'), ['x'], {})", RUNTIME),
    "drips": ("import time\nwhile True:\n    print('x', flush=True)\n    time.sleep(0.01)", TIME),
    "a clock that stands": ("import time\ntime.time = time.perf_counter = lambda: 0\nwhile True:\n    pass", TIME),
    "another json": ("import sys, types\nsys.modules['json'] = types.ModuleType('json')\nprint('x')", RIGHT),
    "an exit status that is no plain number": (
        "class Status(int):\n    def __and__(self, other): return 0\n    def __bool__(self): return False\n"
        "print('y')\nraise SystemExit(Status(7))",
        WRONG,
    ),
    "an exit text that hangs": (
        f"class Status:\n    def __str__(self):\n{BUSY}print('x')\nraise SystemExit(Status())",
        TIME,
    ),
    "an interrupt": ("print('x')\nraise KeyboardInterrupt", RUNTIME),
    "an error that prints itself for ever": (
        "class E(Exception):\n    def __repr__(self): return repr(self)\n    __str__ = __repr__\nraise E",
        RUNTIME,
    ),
    "says that memory ran out": ("import os\nos.write(3, b'{\"outcome\": \"memory\"}')\nprint('x')", MEMORY),
    "a report that is no document": ("import os\nos.write(3, b'\\xff{{{')\nprint('y')", WRONG),
    "a report without end": ("import os\nos.write(3, b'[' * 100_000)\nprint('x')", OUTPUT),
    "exits through the fault handler": (
        "import faulthandler, time\nfaulthandler.dump_traceback_later(0.1, exit=True)\ntime.sleep(3)",
        RUNTIME,
    ),
    "processes of the library": ("import multiprocessing\nmultiprocessing.Pool(2)\nprint('x')", RUNTIME),
    "shared memory": (
        "from multiprocessing import shared_memory\nshared_memory.SharedMemory(create=True, size=9)\nprint('x')",
        RUNTIME,
    ),
    "a temporary file": ("import tempfile\ntempfile.TemporaryFile()\nprint('x')", RUNTIME),
    "ten megabytes of source": ("y = '" + "a" * 10_000_000 + "'\nprint('x')", RIGHT),
    "a hundred thousand brackets": ("y = " + "(" * 100_000, COMPILE),
    "interrupts its own sleep": (
        "import signal, time\nsignal.signal(signal.SIGALRM, lambda *a: None)\n"
        "signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)\ntime.sleep(0.2)\nprint('x')",
        RIGHT,
    ),
}

# Each should return 7 for 1.
FUNCTIONS = {
    "equal to everything": ("class A:\n    def __eq__(self, other): return True\ndef f(x): return A()", WRONG),
    "a number that says it is another": (
        "class I(int):\n    def __eq__(self, o): return True\n    def __index__(self): return 7\ndef f(x): return I(3)",
        WRONG,
    ),
    "a float that says it is another": (
        "class F(float):\n    def __float__(self): return 7.0\ndef f(x): return F(3.5)",
        WRONG,
    ),
    "says it is a number": (
        "class A:\n    __class__ = int\n    def __index__(self): return 7\ndef f(x): return A()",
        RUNTIME,
    ),
    "says it is an array": (
        "class A:\n    def tolist(self): return self\nA.__module__ = 'numpy'\ndef f(x): return A()",
        WRONG,
    ),
    "an array that hangs": (
        f"class A:\n    def tolist(self):\n{BUSY}A.__module__ = 'numpy'\ndef f(x): return A()",
        TIME,
    ),
    "a generator": ("def f(x): yield 7", WRONG),
    "a hundred thousand lists": ("def f(x):\n    for _ in range(10**5): x = [x]\n    return x", WRONG),
    "a list in itself": ("def f(x):\n    x = []\n    x.append(x)\n    return x", WRONG),
    "a hundred thousand digits": ("def f(x): return 10**100_000", OUTPUT),
    "an encoder of its own": (
        'import json\njson.dumps = lambda *a, **k: \'{"outcome": "returned", "value": 8}\'\ndef f(x): return 7',
        WRONG,
    ),
    "two reports": (
        'import os\ndef f(x):\n    os.write(3, b\'{"outcome": "returned", "value": 7}\')\n    return 8',
        WRONG,
    ),
    "no report": ("import os\ndef f(x): os._exit(0)", WRONG),
    "a constructor that hangs": (
        f"class Solution:\n    def __init__(self):\n{BUSY}    def f(self, x): return 7",
        TIME,
    ),
}

# Each should pass `assert c(1) == 7`.
CHECKED = {
    "another error class": ("import builtins\nbuiltins.AssertionError = KeyError\ndef f(x): return 3", WRONG),
    "ends": ("import os\ndef f(x): os._exit(0)", WRONG),
    "stops an iteration": ("def f(x): raise StopIteration", WRONG),
    "exits": ("def f(x): raise SystemExit(0)", WRONG),
    "replies before it is asked": ("import os\nos.write(7, b'{}\\n{\"value\": 8}\\n')\ndef f(x): return 7", WRONG),
    "floods the replies": ("import os\ndef f(x):\n    while True:\n        os.write(7, b'{\"value\": 8}\\n')", WRONG),
}


def test_tricks_get_their_verdicts(verifier: Verifier) -> None:
    check = {"code": "def check(c):\n    assert c(1) == 7"}
    items: dict[str, tuple[VerifyItem, Verdict]] = {}
    items |= {f"prints: {name}": (script(source, "", "x"), verdict) for name, (source, verdict) in SCRIPTS.items()}
    items |= {f"returns: {n}": (returns(source, "f", [1], 7), verdict) for n, (source, verdict) in FUNCTIONS.items()}
    items |= {f"checked: {n}": (function(source, "f", check), verdict) for n, (source, verdict) in CHECKED.items()}
    limits = Limits(wall_seconds=3.0, cpu_seconds=1.0, memory_bytes=2**28)
    asked = [msgspec.structs.replace(item, id=name, limits=limits) for name, (item, _) in items.items()]
    found = {result.id: result.verdict for result in verifier.verify(*asked)}
    assert {name: v for name, v in found.items() if v != items[name][1]} == {}
    eventually(lambda: not running_programs(verifier), "a process is left")
    assert verifier.metric('potstill_verifier_workers_ended_total{reason="sandbox"}') == 0
    assert verifier.metric('potstill_verifier_workers_ended_total{reason="died"}') == 0
