"""Hostile programs by name."""

from __future__ import annotations

import textwrap

from potstill.contracts.verification import Limits, Verdict

RUNTIME, WRONG, TIME = Verdict.RUNTIME_ERROR, Verdict.WRONG_ANSWER, Verdict.TIME_LIMIT
MEMORY, OUTPUT, COMPILE = Verdict.MEMORY_LIMIT, Verdict.OUTPUT_LIMIT, Verdict.COMPILE_ERROR

LIBC = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def try_(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), 'refused')
"""

# Each never prints what is expected, and gets one of these verdicts.
ENDLESS = {
    "fork bomb": ("import os\nwhile True:\n    os.fork()", {RUNTIME}),
    "fork bomb that does not mind": (
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        {TIME},
    ),
    "thread bomb": (
        "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(1e6,), daemon=1).start()",
        {RUNTIME, MEMORY},
    ),
    "threads that stay": (
        "import threading, time\nfor _ in range(5):\n    threading.Thread(target=time.sleep, args=(1e6,)).start()",
        {TIME},
    ),
    "busy loop": ("while True:\n    pass", {TIME}),
    "busy threads": (
        "import threading\nfor _ in range(4):\n    threading.Thread(target=lambda: any(iter(int, 1))).start()",
        {TIME},
    ),
    "sleep": ("import time\ntime.sleep(1e9)", {TIME}),
    "waits for input that never comes": ("import os\nr, w = os.pipe()\nos.read(r, 1)", {TIME}),
    "ignores every signal": (
        "import signal, time\nfor s in range(1, 65):\n    try:\n        signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError):\n        pass\nwhile True:\n    pass",
        {TIME},
    ),
    "a regular expression that backtracks": ("import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')", {TIME}),
    "catches everything": (
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        {TIME},
    ),
    "a huge power": ("print(len(str(7 ** (7 ** 9))))", {TIME, MEMORY, RUNTIME}),
    "allocates until it dies": ("x = []\nwhile True:\n    x.append(bytearray(1 << 20))", {MEMORY}),
    "one huge allocation": ("x = bytearray(1 << 40)", {MEMORY}),
    "a growing string": ("x = 'a'\nwhile True:\n    x += x", {MEMORY}),
    "maps memory": ("import mmap\nx = [mmap.mmap(-1, 1 << 26) for _ in range(1000)]", {MEMORY, RUNTIME}),
    "minds no lack of memory": (
        "x = []\nwhile True:\n    try:\n        x.append(bytearray(1 << 20))\n    except MemoryError:\n        pass",
        {TIME, MEMORY},
    ),
    "endless recursion": ("def f(): return f()\nf()", {RUNTIME}),
    "deep recursion in C": (
        "import sys\nsys.setrecursionlimit(10**8)\nx = []\nfor _ in range(10**6):\n    x = [x]\nprint(repr(x)[:1])",
        {RUNTIME, MEMORY, TIME},
    ),
    "crash": ("import ctypes\nctypes.string_at(0)", {RUNTIME}),
    "abort": ("import os\nos.abort()", {RUNTIME}),
    "kills itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", {RUNTIME}),
    "terminates itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", {RUNTIME}),
    "an alarm": ("import signal, time\nsignal.alarm(1)\ntime.sleep(9)", {RUNTIME}),
    "limits its own CPU time": (
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True:\n    pass",
        {RUNTIME},
    ),
    "limits its own memory": ("import resource\nresource.setrlimit(resource.RLIMIT_AS, (1, 1))\nprint(1)", {RUNTIME}),
    "opens files without end": ("import os\nwhile True:\n    os.dup(0)", {RUNTIME}),
    "prints a megabyte": ("print('x' * 2**20)", {OUTPUT}),
    "prints a hundred megabytes": ("for _ in range(100):\n    print('x' * 2**20)", {OUTPUT}),
    "prints without end": ("while True:\n    print('x')", {OUTPUT}),
    "writes to the pipe without end": ("import os\nwhile True:\n    os.write(1, b'x' * 65536)", {OUTPUT}),
    "floods standard error": ("import sys\nfor _ in range(300):\n    sys.stderr.write('x' * 2**20)", {WRONG, TIME}),
    "floods the report": ("import os\nwhile True:\n    os.write(3, b'x' * 65536)", {OUTPUT}),
    "closes everything and goes on": ("import os\nos.closerange(0, 64)\nwhile True:\n    pass", {TIME}),
    "shuts its output and sleeps": ("import os, time\nos.close(1)\nos.close(2)\nos.close(3)\ntime.sleep(100)", {TIME}),
    "a syntax error": ("def f(:\n    pass", {COMPILE}),
    "a null character": ("x = 1\0", {COMPILE}),
    "brackets that exhaust the parser": ("x = " + "(" * 5000 + ")" * 5000, {COMPILE, MEMORY}),
    "an expression too deep to compile": ("x = " + "-" * 200_000 + "1", {COMPILE, MEMORY, RUNTIME}),
    "a missing module": ("import no_such_module_anywhere", {RUNTIME}),
    "an exception whose text hangs": (
        "class E(Exception):\n    def __str__(self):\n        while True:\n            pass\nraise E",
        {TIME},
    ),
    "hangs at its end": ("import atexit, time\natexit.register(time.sleep, 1e6)", {TIME}),
    "a destructor that hangs": (
        "class D:\n    def __del__(self):\n        while True:\n            pass\nd = D()\ndel d",
        {TIME},
    ),
}

ASLEEP = frozenset(
    {
        "threads that stay",
        "sleep",
        "waits for input that never comes",
        "shuts its output and sleeps",
        "hangs at its end",
    }
)


def limits(name: str) -> Limits:
    """Enough wall time for those that compute, also on a busy machine, and little for those that sleep."""
    return Limits(wall_seconds=1.0 if name in ASLEEP else 8.0, cpu_seconds=0.4, memory_bytes=2**27)


# Each prints "out" only if what it tries succeeded.
REACHING_OUT = {
    "TCP": "import socket\ns = socket.create_connection(('127.0.0.1', PORT), 1)\ns.send(b'x')",
    "UDP": "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.sendto(b'x', ('127.0.0.1', PORT))",
    "names": "import socket\nsocket.getaddrinfo('example.org', 80)",
    "HTTP": "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:PORT/livez', timeout=1)",
    "abstract socket": "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0x')",
    "netlink": "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "socket pair": "import socket\nsocket.socketpair()",
    "canary": "open('CANARY').read()",
    "canary by its descriptor": "import os\nopen(f'/proc/self/fd/{os.open(\"CANARY\", os.O_PATH)}').read()",
    "a path that climbs": "open('../../../../../../CANARY').read()",
    "a link": "import os\nos.symlink('CANARY', '/tmp/link')",
    "hard link": "import os\nos.link('CANARY', 'x')",
    "environment of the parent": "import os\nopen(f'/proc/{os.getppid()}/environ').read()",
    "memory of the parent": "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
    "environment of the service": "open('/proc/SERVICE/environ').read()",
    "memory of the service": "open('/proc/SERVICE/mem', 'rb')",
    "its own memory file": "open('/proc/self/mem', 'rb')",
    "process list": "import os\nos.listdir('/proc')",
    "password file": "open('/etc/passwd').read()",
    "home": "import os\nos.listdir(os.path.expanduser('~root'))",
    "write in its folder": "open('x', 'w').write('x')",
    "write in tmp": "open('/tmp/potstill-left-behind', 'w').write('x')",
    "write in shared memory": "open('/dev/shm/potstill-left-behind', 'w').write('x')",
    "write the interpreter's library": "import os\nopen(os.path.join(os.path.dirname(os.__file__), 'x.py'), 'w')",
    "temporary file": "import tempfile\ntempfile.TemporaryFile()",
    "named pipe": "import os\nos.mkfifo('/tmp/potstill-fifo')",
    "delete": "import os\nos.unlink('CANARY')",
    "change mode": "import os\nos.chmod('CANARY', 0o777)",
    "signal the parent": "import os\nos.kill(os.getppid(), 9)",
    "stop the parent": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)",
    "signal the service": "import os\nos.kill(SERVICE, 9)",
    "signal everybody": "import os\nos.kill(-1, 9)",
    "signal its group": "import os\nos.killpg(0, 9)",
    "signal through a file's owner": "import fcntl, os\nr, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())",
    "signal through a descriptor": "import os, signal as s\ns.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
    "new program": "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo'])",
    "subprocess": "import subprocess\nsubprocess.run(['/bin/true'], check=True)",
    "posix_spawn": "import os\nos.posix_spawn('/bin/true', ['true'], {})",
    "multiprocessing": "import multiprocessing as m\np = m.get_context('fork').Process(target=print)\np.start()",
    "daemon": """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(3)
                open('/tmp/potstill-left-behind', 'w')
    """,
    "vfork by number": f"{LIBC}\ntry_(libc.syscall(58))",
    "clone3 by number": f"{LIBC}\ntry_(libc.syscall(435, 0, 0))",
    "trace": f"{LIBC}\ntry_(libc.ptrace(16, os.getppid(), 0, 0))",
    "read another's memory": f"{LIBC}\ntry_(libc.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0))",
    "user namespace": f"{LIBC}\ntry_(libc.unshare(0x10000000))",
    "mount": f"{LIBC}\ntry_(libc.mount(b'none', b'/tmp', b'tmpfs', 0, 0))",
    "change root": "import os\nos.chroot('/tmp')",
    "become root": "import os\nos.setuid(0)",
    "shared memory segment": f"{LIBC}\ntry_(libc.shmget(0, 4096, 0o1777))",
    "memory file": "import os\nos.memfd_create('x')",
    "message queue": f"{LIBC}\ntry_(libc.msgget(0, 0o1777))",
    "watch files": f"{LIBC}\ntry_(libc.inotify_init())",
    "io_uring": f"{LIBC}\ntry_(libc.syscall(425, 1, 0))",
    "userfaultfd": f"{LIBC}\ntry_(libc.syscall(323, 0))",
    "keyring": f"{LIBC}\ntry_(libc.syscall(250, 0, -3, 0))",
    "kernel program": f"{LIBC}\ntry_(libc.syscall(321, 0, 0, 0))",
    "lower priority of others": "import os\nos.setpriority(os.PRIO_USER, 0, 19)",
    "pin to a core": "import os\nos.sched_setaffinity(os.getppid(), {0})",
    "raise its limits": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "its parent's limits": "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_AS, (1, 1))",
    "lift the death with its parent": f"{LIBC}\ntry_(libc.prctl(1, 0))",
    "type into a terminal": "import fcntl\nfcntl.ioctl(0, 0x5412, b'x')",
    "another user's session": "import os\nos.setsid()",
}  # fmt: skip


def aimed(name: str, aims: dict[str, str]) -> str:
    """A program that reaches out, with the names of what it reaches for filled in."""
    source = textwrap.dedent(REACHING_OUT[name])
    for word, value in aims.items():
        source = source.replace(word, value)
    return f"{source}\nprint('out')"


# Each would pass if it could get at WANTED, which is spelled backwards where the program may see it.
FOOLING = {
    "leaves quietly": "import sys\nsys.exit(0)",
    "leaves at once": "import os\nos._exit(0)",
    "claims success in its status": "print('accepted')\nimport os\nos._exit(0)",
    "patches print": "import builtins\nbuiltins.print = lambda *a, **k: None\nprint('x')",
    "replaces standard output": "import sys, io\nsys.stdout = io.StringIO()\nprint('x')",
    "an object equal to everything": """
        class A(str):
            def __eq__(self, other): return True
            __hash__ = str.__hash__
        print(A('x'))
    """,
    "patches the harness": """
        import sys
        for name, module in list(sys.modules.items()):
            if name.startswith('services'):
                for each in list(vars(module)):
                    if not each.startswith('__'):
                        setattr(module, each, lambda *a, **k: {'outcome': 'passed', 'value': 1})
    """,
    "writes a report": 'import os\nos.write(3, b\'{"outcome": "passed"}\')\nos._exit(0)',
    "writes many reports": """
        import json, os
        for outcome in ('passed', 'accepted', 'returned'):
            report = {'outcome': outcome, 'verdict': 'accepted', 'score': 1.0, 'value': True}
            os.write(3, json.dumps(report).encode())
    """,
    "writes to every file": """
        import os
        for file in range(64):
            try:
                os.write(file, b'{"outcome": "passed", "score": 1.0}')
            except OSError:
                pass
        os._exit(0)
    """,
    "looks into every frame": """
        import sys
        frame = sys._getframe()
        while frame:
            for value in (*frame.f_locals.values(), *frame.f_globals.values()):
                if 'WANTED'[::-1] in repr(value):
                    print('WANTED'[::-1])
            frame = frame.f_back
    """,
    "looks into every object": """
        import gc
        secret = 'WANTED'[::-1]
        for each in gc.get_objects():
            if each is not globals() and type(each) in (dict, list, tuple, set):
                try:
                    if secret in repr(each)[:10000]:
                        raise SystemExit(secret)
                except (ValueError, RuntimeError):
                    pass
    """,
    "looks into its environment": """
        import os, sys
        if 'WANTED'[::-1] in repr((os.environ, sys.argv)):
            print('WANTED'[::-1])
    """,
    "looks into every file": """
        import os
        secret = 'WANTED'[::-1]
        for folder in ('/', '/tmp', '/dev/shm', '/proc/self', '/proc/1', os.getcwd()):
            try:
                names = os.listdir(folder)
            except OSError:
                continue
            for name in names:
                try:
                    if secret in open(os.path.join(folder, name), errors='ignore').read():
                        print(secret)
                except OSError:
                    pass
    """,
    "looks into every descriptor": """
        import os
        for file in range(256):
            try:
                text = os.pread(file, 1 << 20, 0).decode(errors='ignore')
            except OSError:
                continue
            if 'WANTED'[::-1] in text:
                print('WANTED'[::-1])
    """,
}

# Looks for a word that it knows the first half of, everywhere in its own memory; prints what follows.
SEARCH = """
import ctypes, gc, os, re
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
libc.write.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
r, w = os.pipe()
top = libc.sbrk(0) >> 22
regions = {id(each) >> 22 for each in gc.get_objects()} | {top, top - 1, top - 2, top - 3, top - 4}
found = set()
for region in sorted({region + step for region in regions for step in (-1, 0, 1)}):
    text = b''
    for page in range(region << 22, (region + 1) << 22, 4096):
        if libc.write(w, page, 4096) == 4096:  # fails where nothing is mapped
            text = text[-64:] + os.read(r, 4096)
            for match in re.finditer('FIRST'[::-1].encode() + rb'([0-9a-f]{16})', text):
                found.add(match[1].decode())
print('found ' + ' '.join(sorted(found)) if found else 'nothing')
"""

REPORT = 'import os\ndef f(x):\n    os.write(3, b\'{"outcome": "%s", "value": true}\')\n    os._exit(0)'
# A function f of one argument, which never returns what is expected.
FUNCTIONS = {
    "a number equal to everything": """
        class Sly(int):
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            def __hash__(self): return 0
            def __index__(self): return 7
        def f(x): return Sly(0)
    """,
    "a list equal to everything": """
        class Sly(list):
            def __eq__(self, other): return True
            def __len__(self): return 3
            def __iter__(self): return iter([1, 2, 3])
        def f(x): return Sly()
    """,
    "an object equal to everything": "class Sly:\n    def __eq__(self, other): return True\ndef f(x): return Sly()",
    "an object that claims to be a list": """
        class Sly:
            __class__ = list
            def __eq__(self, other): return True
        def f(x): return Sly()
    """,
    "reports a value": REPORT % "returned",
    "reports that it passed": REPORT % "passed",
    "replies to calls beforehand": "import os\ndef f(x):\n    os.write(7, b'{\"value\": true}\\n' * 9)\n    return 0",
    "patches json": """
        import json
        json.dumps = lambda *a, **k: '{"outcome": "passed"}'
        json.loads = lambda *a, **k: {}
        def f(x): return 0
    """,
    "looks into its caller": """
        import sys
        def f(x):
            frame = sys._getframe(1)
            return frame.f_locals.get('expected', frame.f_globals.get('expected', 0))
    """,
    "raises what a test raises": "def f(x):\n    raise AssertionError('passed')",
    "leaves": "import os\ndef f(x): os._exit(0)",
    "exits": "import sys\ndef f(x): sys.exit(0)",
    "leaves when it is loaded": "import os\nos._exit(0)",
    "defines something else": "def g(x): return 1",
    "a generator": "def f(x):\n    yield from (1, 2, 3)",
    "itself": "def f(x): return f",
    "a list within itself": "def f(x):\n    y = []\n    y.append(y)\n    return y",
    "not a number": "def f(x): return float('nan')",
    "text that is no text": "def f(x): return '\\ud800'",
}
