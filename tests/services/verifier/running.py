"""A real verifier as a process of its own, and what the kernel says of its workers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx

from potstill.contracts import wire
from potstill.contracts.verification import Verdict, VerifyItem, VerifyRequest, VerifyResponse, VerifyResult
from potstill.local.stack import free_ports

T = TypeVar("T")
TOKEN = "a-token-of-some-length"
PATIENCE_SECONDS = 60.0
MSGPACK_BOTH_WAYS = {"content-type": wire.MSGPACK, "accept": wire.MSGPACK}

# No closed form, and sympy's numeric integration does not end within a minute either.
ENDLESS = VerifyItem("endless", "math", r"\boxed{\int_0^1 \sin(x^x)\cos(x^3) dx}", "4")
# The parser needs more than a second for so many brackets, and then the answer is right.
SLOW = VerifyItem("slow", "math", r"\boxed{" + "(" * 24 + "1+x" + ")" * 24 + "}", "x+1")
EASY = VerifyItem("easy", "math", "The answer is 42.", "42")


def eventually(look: Callable[[], T], what: str) -> T:
    """The first true value of `look`."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (seen := look()):
        assert time.monotonic() < until, what
        time.sleep(0.02)
    return seen


@dataclass
class Verifier:
    process: subprocess.Popen[bytes]
    http: httpx.Client
    seen: set[int] = field(default_factory=set)  # every worker that was ever looked at

    def post(self, items: list[VerifyItem]) -> httpx.Response:
        return self.http.post("/v1/verify", content=wire.encode(VerifyRequest(tuple(items))), headers=MSGPACK_BOTH_WAYS)

    def answer(self, items: list[VerifyItem]) -> VerifyResponse:
        response = self.post(items)
        assert response.status_code == 200, response.text
        return wire.decode(response.content, VerifyResponse)

    def verify(self, *items: VerifyItem) -> list[VerifyResult]:
        return list(self.answer(list(items)).results)

    def explain(self, *items: VerifyItem) -> list[VerifyResult]:
        content = wire.encode(VerifyRequest(items))
        response = self.http.post("/v1/verify?explain=true", content=content, headers=MSGPACK_BOTH_WAYS)
        assert response.status_code == 200, response.text
        return list(wire.decode(response.content, VerifyResponse).results)

    def verdict(self, reference: str, response: str, kind: str = "math") -> Verdict:
        [result] = self.verify(VerifyItem("one", kind, response, reference))
        return result.verdict

    def metric(self, sample: str) -> float:
        lines = self.http.get("/metrics").text.splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.rsplit(" ", 1)[0] == sample), 0.0)

    def isolation(self) -> tuple[str, ...]:
        return tuple(self.http.get("/v1/capabilities").json()["isolation"])

    def workers(self) -> list[int]:
        """Process ids of the workers that live."""
        listed = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        pids = [int(pid) for children in listed for pid in children.read_text().split() if is_running(int(pid))]
        self.seen.update(pids)
        return pids

    def busy_worker(self) -> int:
        """A worker that is computing now."""
        before = {pid: cpu_ticks(pid) for pid in self.workers()}

        def look() -> int | None:
            return next((pid for pid, ticks in before.items() if cpu_ticks(pid) > ticks + 10), None)

        return eventually(look, "no worker is busy")

    def wait_ready(self) -> None:
        def is_ready() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return self.http.get("/readyz").status_code == 200
            return False

        eventually(is_ready, "the verifier did not become ready")

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        self.process.send_signal(signal_number)
        self.process.wait(PATIENCE_SECONDS)


def cpu_ticks(pid: int) -> int:
    """User and system time of a process, in clock ticks; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[11]) + int(fields[12])


def is_running(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Background(threading.Thread):
    """A request in flight; `result` waits for what came of it."""

    def __init__(self, request: Callable[[], list[VerifyResult]], may_be_cut_off: bool = False) -> None:
        super().__init__(daemon=True)
        self._expected = (httpx.TransportError, AssertionError) if may_be_cut_off else ()
        self._request = request
        self._results: list[VerifyResult] = []
        self.start()

    def run(self) -> None:
        with contextlib.suppress(*self._expected):
            self._results = self._request()

    def result(self) -> list[VerifyResult]:
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive()
        return self._results


@contextlib.contextmanager
def started_verifier(
    environment: dict[str, str] | None = None, launcher: tuple[str, ...] = (), **settings: Any
) -> Iterator[Verifier]:
    """A verifier that may still be starting. Nothing of it may be left afterwards."""
    port = free_ports(["any"])["any"]
    configured = {"token": TOKEN, "port": port, "drain_seconds": 5, "log_level": "error"} | settings
    variables = {f"POTSTILL_{name.upper()}": str(value) for name, value in configured.items()}
    process = subprocess.Popen(
        [*launcher, sys.executable, "-m", "services.verifier"], env=os.environ | variables | (environment or {})
    )
    headers = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=PATIENCE_SECONDS) as client:
        verifier = Verifier(process, client)
        try:
            yield verifier
        finally:
            if process.poll() is None:
                verifier.workers()
                verifier.stop()
            eventually(lambda: not any(map(is_running, verifier.seen)), "workers outlived the service")


@contextlib.contextmanager
def running_verifier(launcher: tuple[str, ...] = (), **settings: Any) -> Iterator[Verifier]:
    with started_verifier(None, launcher, **settings) as verifier:
        verifier.wait_ready()
        yield verifier
