"""One worker process, as the pool sees it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import dataclass, field
from typing import Self

import msgspec

from potstill.contracts.verification import Limits, VerifyItem
from services.verifier.frames import LEAVING, Hello, Receipt, Reply, frame, receive
from services.verifier.judgement import Judgement
from services.verifier.kinds import BY_TESTS
from services.verifier.sandbox.runner import PATIENCE, SETTLE_SECONDS
from services.verifier.settings import SandboxOptions

START_SECONDS = 60.0
# Nothing secret is in a worker's environment. One hash seed makes sympy's orderings, hence verdicts, repeatable.
PASSED_ON = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "HOME")
FIXED = {"PYTHONHASHSEED": "0"}
END_REASONS = {code: reason for reason, code in LEAVING.items()} | {-signal.SIGXCPU: "cpu"}


class DeadlineExpiredError(Exception):
    """The worker was still busy with an item at its deadline, and has been killed."""


class WorkerDiedError(Exception):
    """The worker ended in the middle of an item, not by our hand."""


class WorkerAbsentError(Exception):
    """The worker had ended before it read the item."""


class WorkerStartError(Exception):
    """The worker ended, or said nothing, before its self-test had passed."""


@dataclass(frozen=True)
class WorkerOptions:
    deadline_seconds: float
    memory_bytes: int
    recycle_after: int
    sandbox: SandboxOptions = field(default_factory=SandboxOptions)

    def deadline(self, item: VerifyItem) -> float:
        """Seconds after which a worker that still judges an item is killed. Programs end sooner, by their own."""
        if item.kind in BY_TESTS:
            return PATIENCE * (item.limits or Limits()).wall_seconds + 3 * SETTLE_SECONDS
        return self.deadline_seconds


class WorkerProcess:
    def __init__(self, process: asyncio.subprocess.Process, options: WorkerOptions) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._options = process, options
        self._requests, self._replies = process.stdin, process.stdout
        self.hello = Hello(())
        self.end_reason = ""  # why we ended it; empty while it lives or when it died by itself

    @classmethod
    async def start(cls, options: WorkerOptions) -> Self:
        """Start a process and wait until it has passed its self-test. Raises WorkerStartError."""
        arguments: dict[str, object] = {
            "--parent": os.getpid(),
            "--memory-bytes": options.memory_bytes,
            "--deadline-seconds": options.deadline_seconds,
            "--recycle-after": options.recycle_after,
            "--sandbox-user-id": options.sandbox.user_id,
        }
        if (gvisor := options.sandbox.gvisor) is not None:
            arguments |= {"--runsc": gvisor.runsc, "--runsc-platform": gvisor.platform}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.verifier.worker"),
            *(str(part) for argument in arguments.items() for part in argument),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: os.environ[name] for name in PASSED_ON if name in os.environ} | FIXED,
            # A signal to the service's process group must not reach items that are being drained.
            start_new_session=True,
        )
        worker = cls(process, options)
        try:
            async with asyncio.timeout(START_SECONDS):
                hello = await receive(worker._replies, Hello)
        except asyncio.IncompleteReadError as error:
            raise WorkerStartError(f"it ended with code {await process.wait()} before its self-test passed") from error
        except TimeoutError as error:
            await worker.end("self_test")
            raise WorkerStartError(f"its self-test did not end within {START_SECONDS:.0f} s") from error
        except asyncio.CancelledError:
            await worker.end("abandoned")
            raise
        worker.hello = hello
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """False as soon as its end can be seen; uvloop raises RuntimeError for a write to a pipe that is closed."""
        return self._process.returncode is None and not self.end_reason and not self._requests.is_closing()

    async def judge(self, item: VerifyItem) -> Judgement:
        """One item at a time. Raises DeadlineExpiredError, WorkerDiedError, WorkerAbsentError: it is then gone."""
        received = False
        try:
            async with asyncio.timeout(self._options.deadline(item)):
                self._requests.write(frame(item))
                await self._requests.drain()
                received = await receive(self._replies, Receipt) == Receipt()
                reply = await receive(self._replies, Reply)
        except TimeoutError as error:
            self.kill("deadline")
            raise DeadlineExpiredError from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            reason = await self.exited()
            if not received:
                raise WorkerAbsentError from error
            if reason == "cpu":
                raise DeadlineExpiredError from error
            raise WorkerDiedError(f"it ended with code {self._process.returncode}") from error
        except msgspec.MsgspecError as error:
            self.kill("garbled")
            raise WorkerDiedError(f"its reply could not be read: {error}") from error
        except asyncio.CancelledError:
            self.kill("abandoned")  # its reply would be taken for that of the next item
            raise
        self.end_reason = reply.leaving
        if reply.leaving == "sandbox":
            raise WorkerDiedError(str(reply.judgement.detail.get("reason")))
        return reply.judgement

    def kill(self, reason: str) -> None:
        self.end_reason = self.end_reason or reason
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self, reason: str) -> None:
        """Kill it and wait until nothing is left of it."""
        self.kill(reason)
        await self._process.wait()

    async def exited(self) -> str:
        """Wait until it has ended; why it has."""
        code = await self._process.wait()
        return self.end_reason or END_REASONS.get(code, "died")
