"""Which weights answer a request: finding a policy's folder, and swapping to it once, between samples.

See docs/architecture.md, "A policy request".
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote, urlsplit

from potstill.contracts.generation import PolicyRef
from potstill.service.errors import PolicyLoadError, UnavailableError, UnprocessableError
from potstill.service.logs import get_logger
from services.student import metrics
from services.student.weight_files import WeightsRejectedError

FULL_WEIGHTS = "model.safetensors"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"

log = get_logger("student")


class PolicyKind(StrEnum):
    FULL = "full"
    LORA = "lora"


@dataclass(frozen=True)
class PolicyFolder:
    """A published policy, found on disk."""

    version: int
    folder: Path  # absolute, symbolic links resolved
    kind: PolicyKind

    @property
    def family(self) -> Path:
        """Shared by the versions of one job, and by nothing else."""
        return self.folder.parent

    @property
    def weights(self) -> Path:
        return self.folder / (FULL_WEIGHTS if self.kind is PolicyKind.FULL else ADAPTER_WEIGHTS)


def locate(reference: PolicyRef, artifacts: Path) -> Path:
    """The folder a policy uri names, links resolved.

    Raises UnprocessableError `outside_artifacts` for anything that is not a local folder under the artifacts root.
    """
    parts = urlsplit(reference.uri)
    root = artifacts.resolve()
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise _outside(f"policy.uri must be file:///… below the artifacts root, not {reference.uri!r}")
    try:
        folder = Path(unquote(parts.path)).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise _outside(f"policy.uri {reference.uri!r} is no path: {error}") from error
    if root not in folder.parents:
        raise _outside(
            f"policy.uri {reference.uri!r} lies outside the artifacts root: publish policies below POTSTILL_ARTIFACTS"
        )
    return folder


def open_policy(version: int, folder: Path, artifacts: Path) -> PolicyFolder:
    """See what kind of policy a folder holds. Raises WeightsRejectedError when it holds none."""
    kind = PolicyKind.LORA if (folder / ADAPTER_CONFIG).exists() else PolicyKind.FULL
    policy = PolicyFolder(version, folder, kind)
    if not policy.weights.is_file():
        raise WeightsRejectedError(f"{policy.weights} does not exist")
    needed = [policy.weights, *([folder / ADAPTER_CONFIG] if kind is PolicyKind.LORA else [])]
    if any(artifacts.resolve() not in path.resolve().parents for path in needed):
        raise WeightsRejectedError(f"a file of {folder} is a link that leaves the artifacts root")
    return policy


def _outside(detail: str) -> UnprocessableError:
    return UnprocessableError(detail, code="outside_artifacts")


@dataclass(frozen=True)
class _Swap:
    version: int
    folder: Path
    task: asyncio.Task[None]


class PolicyGate:
    """Lets samples run under the weights they ask for.

    Requests that the loaded weights satisfy run together. One that needs newer weights closes the gate, waits until
    those inside have left, swaps, and opens it again; whoever asks meanwhile waits for that swap and then looks again.
    """

    def __init__(self, load: Callable[[PolicyFolder], Awaitable[None]], artifacts: Path) -> None:
        self._load = load
        self._artifacts = artifacts
        self._loaded: PolicyFolder | None = None
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self._swap: _Swap | None = None

    @property
    def version(self) -> int:
        """Of the weights that serve now; 0 before any policy was loaded."""
        return self._loaded.version if self._loaded else 0

    @contextlib.asynccontextmanager
    async def admit(self, reference: PolicyRef | None) -> AsyncIterator[None]:
        """Hold the weights that `reference` asks for. Raises PolicyLoadError or UnprocessableError."""
        if reference is None:
            while self._swap is not None:
                await self._outcome(self._swap)
        else:
            folder = locate(reference, self._artifacts)
            while self._swap is not None or not self._satisfies(reference.version, folder):
                await self._advance(reference.version, folder)
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if self._inside == 0:
                self._empty.set()

    async def close(self) -> None:
        """Give up a swap that has not ended."""
        if self._swap is not None:
            self._swap.task.cancel()
            await asyncio.wait({self._swap.task})

    def _satisfies(self, version: int, folder: Path) -> bool:
        loaded = self._loaded
        return loaded is not None and loaded.family == folder.parent and loaded.version >= version

    async def _advance(self, version: int, folder: Path) -> None:
        """Wait for the swap under way, or for a new one to this policy."""
        swap = self._swap or self._begin(version, folder)
        rejection = await self._outcome(swap)
        if rejection is not None and (swap.version, swap.folder) == (version, folder):
            raise PolicyLoadError(
                f"policy {version} could not be loaded: {rejection}; policy {self.version} goes on serving"
            )

    async def _outcome(self, swap: _Swap) -> WeightsRejectedError | None:
        """Why the policy was rejected, if it was. Raises what concerns everybody who waits, such as a dead engine."""
        await asyncio.wait({swap.task})  # not cancelled with the request that began it: others may wait for it
        if swap.task.cancelled():
            raise UnavailableError("the service is stopping")
        error = swap.task.exception()
        if error is None or isinstance(error, WeightsRejectedError):
            return error
        raise error

    def _begin(self, version: int, folder: Path) -> _Swap:
        task = asyncio.create_task(self._swap_to(version, folder))
        task.add_done_callback(self._end)
        self._swap = _Swap(version, folder, task)
        return self._swap

    def _end(self, task: asyncio.Task[None]) -> None:
        self._swap = None
        failed = task.cancelled() or task.exception() is not None
        metrics.policy_swaps.labels("failed" if failed else "loaded").inc()

    async def _swap_to(self, version: int, folder: Path) -> None:
        begun = time.perf_counter()
        try:
            policy = open_policy(version, folder, self._artifacts)
            await self._empty.wait()
            drained = time.perf_counter()
            await self._load(policy)
        except WeightsRejectedError as error:
            log.error("policy rejected", version=version, serving=self.version, reason=str(error))
            raise
        loaded = time.perf_counter()
        self._loaded = policy
        metrics.policy_version.set(version)
        metrics.policy_swap_seconds.labels("drain").observe(drained - begun)
        metrics.policy_swap_seconds.labels("load").observe(loaded - drained)
        log.info("policy loaded", version=version, folder=str(folder), seconds=round(loaded - begun, 3))
