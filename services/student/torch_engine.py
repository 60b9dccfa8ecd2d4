"""The torch engine: one thread owns the model and decodes for every request together."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from potstill.contracts.capabilities import EngineInfo, ModelInfo
from potstill.contracts.generation import Prompt, Sample, Sampling
from potstill.service.errors import UnavailableError
from potstill.service.logs import get_logger
from potstill.service.settings import SettingsError
from services.student.engine import EngineDeadError, EngineFacts
from services.student.model_facts import describe_model, fetch_model
from services.student.policy import PolicyFolder
from services.student.row_invariance import request_fixed_summation_order
from services.student.settings import StudentSettings
from services.student.slot_decoder import SlotDecoder, UnsupportedModelError
from services.student.slot_scheduler import Group, SlotScheduler
from services.student.torch_weights import TorchWeights

FEATURES = frozenset({"logprobs", "temperature", "top_k", "top_p", "policy", "lora", "batch_invariant"})
STOP_SECONDS = 30.0

T = TypeVar("T")
log = get_logger("student")


@dataclass(frozen=True)
class Posted:
    """Work for the engine's thread, and what to tell its owner when the thread ends first."""

    run: Callable[[], None]
    refuse: Callable[[Exception], None]


class TorchEngine:
    """See services.student.engine.Engine. Samples of a prompt do not depend on what else is being generated."""

    def __init__(self, settings: StudentSettings) -> None:
        self._settings = settings
        self._inbox: queue.SimpleQueue[Posted] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="torch-engine", daemon=True)
        self._lock = threading.Lock()  # between posting work and the end of the thread
        self._end: Exception | None = None
        self._scheduler: SlotScheduler | None = None
        self._weights: TorchWeights | None = None
        self._is_loading_policy = False

    async def start(self) -> EngineFacts:
        folder = await asyncio.to_thread(fetch_model, self._settings)
        model = await asyncio.to_thread(describe_model, self._settings, folder)
        self._thread.start()
        await self._call(lambda: self._load_model(folder, model))
        info = EngineInfo(name="torch", version=str(torch.__version__), dtype=self._settings.student_dtype)
        return EngineFacts(model=model, engine=info, features=FEATURES)

    async def stop(self) -> None:
        if not self._thread.is_alive():
            return
        stopping = UnavailableError("the service is stopping")
        with contextlib.suppress(EngineDeadError):
            self._post(Posted(lambda: self._finish(stopping), lambda _: None))
        await asyncio.to_thread(self._thread.join, STOP_SECONDS)

    async def alive(self) -> None:
        # A load is one long step of the thread; whether it gets on shows in its own answer.
        if not self._is_loading_policy:
            await self._call(lambda: None)
        elif not self._thread.is_alive():
            raise EngineDeadError("the engine's thread has ended")

    async def generate(self, prompt: Prompt, sampling: Sampling, top_k: int) -> tuple[Sample, ...]:
        group = Group(prompt, sampling, top_k)
        self._post(Posted(lambda: self._require_scheduler().add(group), group.fail))
        return await asyncio.wrap_future(group.future)

    async def load_policy(self, policy: PolicyFolder) -> None:
        self._is_loading_policy = True
        try:
            await self._call(lambda: self._load_policy(policy))
        finally:
            self._is_loading_policy = False

    async def _call(self, work: Callable[[], T]) -> T:
        """Run `work` in the engine's thread, between steps."""
        future: Future[T] = Future()
        self._post(Posted(lambda: _resolve(future, work), lambda error: _refuse(future, error)))
        return await asyncio.wrap_future(future)

    def _post(self, posted: Posted) -> None:
        with self._lock:
            if self._end is not None:
                raise self._end
            self._inbox.put(posted)

    def _run(self) -> None:
        request_fixed_summation_order()
        if self._settings.student_threads:
            torch.set_num_threads(self._settings.student_threads)
        try:
            while self._end is None:
                self._receive()
                if self._scheduler is not None:
                    self._scheduler.advance()
        except Exception as error:
            # Whatever it is: callers must hear of it, and the process must be replaced.
            log.critical("the engine died", exc_info=error)
            self._finish(EngineDeadError(f"the engine died: {type(error).__name__}: {error}"))

    def _receive(self) -> None:
        """Run what was posted; with nothing to generate, wait for it."""
        is_idle = self._scheduler is None or self._scheduler.is_idle
        with contextlib.suppress(queue.Empty):
            while True:
                self._inbox.get(block=is_idle).run()
                is_idle = False

    def _finish(self, error: Exception) -> None:
        """End the thread and answer all that waits with `error`."""
        with self._lock:
            self._end = error
        if self._scheduler is not None:
            self._scheduler.fail_all(error)
        with contextlib.suppress(queue.Empty):
            while True:
                self._inbox.get_nowait().refuse(error)

    def _load_model(self, folder: Path, model: ModelInfo) -> None:
        settings = self._settings
        try:
            self._weights = TorchWeights(
                folder, getattr(torch, settings.student_dtype), _device(settings), settings.student_max_lora_rank
            )
            decoder = SlotDecoder(self._weights.model, settings.student_slots, model.max_length)
        except UnsupportedModelError as error:
            raise SettingsError(f"POTSTILL_STUDENT_MODEL: {error}") from error
        self._scheduler = SlotScheduler(decoder)
        log.info("torch engine", row_counts=decoder.row_counts, threads=torch.get_num_threads())

    def _load_policy(self, policy: PolicyFolder) -> None:
        scheduler = self._require_scheduler()
        scheduler.drop_abandoned()
        assert scheduler.is_idle, "the gate lets no sample in flight during a swap"
        assert self._weights is not None
        self._weights.load(policy)
        scheduler.decoder.adopt(self._weights.model)
        scheduler.policy_version = policy.version

    def _require_scheduler(self) -> SlotScheduler:
        assert self._scheduler is not None, "start() loads the model first"
        return self._scheduler


def _resolve(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - handed to whoever awaits the future
        future.set_exception(error)


def _refuse(future: Future[Any], error: Exception) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)


def _device(settings: StudentSettings) -> torch.device:
    if settings.student_device != "auto":
        return torch.device(settings.student_device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
