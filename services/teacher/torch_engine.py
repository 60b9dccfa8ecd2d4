"""The transformers engine: one model, one thread that owns it, one group at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
import transformers

from potstill.contracts.arrays import TokenIds
from potstill.contracts.capabilities import EngineInfo
from potstill.contracts.scoring import ScoreRequest, ScoreResponse
from potstill.contracts.scoring import Sequence as ScoredSequence
from services.teacher import metrics
from services.teacher.answers import empty_score
from services.teacher.engine import EngineDeadError, EngineFacts, Feature
from services.teacher.groups import Group, group_by_prompt
from services.teacher.head import Wanted
from services.teacher.memory import FREE_SHARE, available_bytes, return_large_allocations
from services.teacher.model_facts import describe_model, resolve_max_length
from services.teacher.progress import Progress
from services.teacher.settings import TeacherSettings
from services.teacher.torch_cost import ModelShape, estimate_request
from services.teacher.torch_model import BATCH_TOKENS, GroupScores, TorchModel

FEATURES = frozenset(Feature)

T = TypeVar("T")


class TorchEngine:
    """Implements `Engine`. A group is the unit of work: its answer depends on nothing else that is asked."""

    def __init__(self, settings: TeacherSettings) -> None:
        self._settings = settings
        self._thread = ThreadPoolExecutor(1, "teacher", initializer=self._set_threads)
        self._loaded: TorchModel | None = None
        self._shape: ModelShape | None = None
        self._progress = Progress()

    async def start(self) -> EngineFacts:
        return await self._in_thread(self._load)

    async def stop(self) -> None:
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)

    async def alive(self) -> None:
        if self._progress.is_idle:
            await self._in_thread(self._read_one_token)
        elif self._progress.seconds_since_moved > self._settings.request_seconds:
            raise EngineDeadError(f"one group has been in work for {self._progress.seconds_since_moved:.0f} s")

    def estimate_bytes(self, request: ScoreRequest) -> int:
        assert self._shape is not None
        return estimate_request(request, self._shape, BATCH_TOKENS)

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        wanted = Wanted(request.temperature, request.top_k, request.entropy)
        scores = [empty_score(sequence, request) for sequence in request.sequences]
        for group in group_by_prompt(request):
            done = await self._in_thread(self._score_group, group, wanted)
            _count(group, done)
            for index, score in zip(group.members, done.scores, strict=True):
                scores[index] = score
        return ScoreResponse(tuple(scores))

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        with self._progress.unit():
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _set_threads(self) -> None:
        if self._settings.teacher_threads:
            torch.set_num_threads(self._settings.teacher_threads)

    def _load(self) -> EngineFacts:
        return_large_allocations()
        model = TorchModel(self._settings)
        model.check_arithmetic()
        self._loaded = model
        self._shape = ModelShape.of(model.config, model.vocab_size, model.dtype.itemsize)
        max_length = resolve_max_length(self._settings, model.config)
        return EngineFacts(
            model=describe_model(self._settings, model.config, model.vocab_size, max_length),
            engine=EngineInfo("torch", _version(), self._settings.teacher_dtype),
            features=FEATURES,
            max_top_k=model.vocab_size,
            memory_bytes=self._settings.teacher_memory_bytes or self._half_of_free(model),
        )

    def _half_of_free(self, model: TorchModel) -> int:
        free = torch.cuda.mem_get_info(model.device)[0] if model.device.type == "cuda" else available_bytes()
        return int(
            FREE_SHARE * max(0, free - self._settings.teacher_prefix_bytes - self._settings.teacher_score_cache_bytes)
        )

    def _score_group(self, group: Group, wanted: Wanted) -> GroupScores:
        assert self._loaded is not None
        return self._loaded.score_group(group, wanted)

    def _read_one_token(self) -> None:
        assert self._loaded is not None
        one = TokenIds.of([0])
        self._loaded.score_group(Group(one, (0,), (ScoredSequence(one, one),)), Wanted(1.0, 0, False))


def _version() -> str:
    return f"{torch.__version__}, transformers {transformers.__version__}"


def _count(group: Group, done: GroupScores) -> None:
    shared = len(group.prompt) * (len(group.sequences) - 1)
    metrics.tokens.labels("prompt_reused").inc(shared + done.num_reused)
    metrics.tokens.labels("prompt_computed").inc(len(group.prompt) - done.num_reused)
