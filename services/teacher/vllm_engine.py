"""The vLLM engine: prompts and responses are read as prompts by models that end in our own pooler.

The numbers are made inside the engine (`vllm_scoring.py`); only a table of them crosses back to this process.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import vllm
from numpy.typing import NDArray
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform
from vllm.pooling_params import PoolingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError as VllmDeadError

from potstill.contracts.arrays import TokenIds
from potstill.contracts.capabilities import EngineInfo
from potstill.contracts.scoring import ScoreRequest, ScoreResponse, SequenceScore
from potstill.contracts.scoring import Sequence as ScoredSequence
from potstill.service.settings import SettingsError
from services.teacher import metrics
from services.teacher.answers import answer_bytes, empty_score
from services.teacher.engine import CacheUnit, EngineDeadError, EngineFacts, Feature
from services.teacher.memory import FREE_SHARE, available_bytes
from services.teacher.model_facts import describe_model, load_config, model_id, resolve_max_length
from services.teacher.progress import Progress
from services.teacher.scoring_task import ScoringTask, read_table
from services.teacher.settings import TeacherSettings
from services.teacher.vllm_scoring import TASK, TASK_FIELD, register

FEATURES = frozenset(Feature)
WORKER = "services.teacher.vllm_worker.ScoringWorker"
# Tokens of one engine step. Its activations grow with them; the head has chunks of its own.
STEP_TOKENS = 2048
# Smaller blocks share more of a prompt; a CPU's attention wants multiples of 32.
CPU_BLOCK_TOKENS = 32


@dataclass(frozen=True)
class _Answer:
    table: NDArray[np.float32]  # [T, width]
    num_cached: int


class VllmEngine:
    """Implements `Engine`."""

    def __init__(self, settings: TeacherSettings) -> None:
        self._settings = settings
        self._loading: asyncio.Task[EngineFacts] | None = None
        self._llm: AsyncLLM | None = None
        self._request_ids = itertools.count()
        self._progress = Progress()

    async def start(self) -> EngineFacts:
        self._loading = asyncio.create_task(asyncio.to_thread(self._load))
        facts = await asyncio.shield(self._loading)
        one = TokenIds.of([0])
        await self.score(ScoreRequest((ScoredSequence(one, one),)))  # the first request compiles
        return facts

    async def stop(self) -> None:
        if self._loading is not None:
            await asyncio.wait({self._loading})  # a thread cannot be stopped, and it starts a process
        if self._llm is not None:
            self._llm.shutdown()

    async def alive(self) -> None:
        assert self._llm is not None
        try:
            await self._llm.check_health()
            if self._progress.is_idle:
                await self._llm.is_sleeping()  # a round trip to the engine's process
        except VllmDeadError as error:
            raise EngineDeadError("the vLLM engine has died: restart this service") from error
        if not self._progress.is_idle and self._progress.seconds_since_moved > self._settings.request_seconds:
            raise EngineDeadError(f"vLLM has finished nothing for {self._progress.seconds_since_moved:.0f} s")

    def estimate_bytes(self, request: ScoreRequest) -> int:
        # Weights, keys and values and logits are bounded by vLLM itself; what grows with a request are its answers.
        return answer_bytes(request)

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        try:
            async with asyncio.TaskGroup() as tasks:
                scoring = [tasks.create_task(self._score(sequence, request)) for sequence in request.sequences]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        return ScoreResponse(tuple(task.result() for task in scoring))

    async def _score(self, sequence: ScoredSequence, request: ScoreRequest) -> SequenceScore:
        if not len(sequence.response_token_ids):
            return empty_score(sequence, request)
        # The last response token predicts nothing that is asked for.
        ids = [*sequence.prompt_token_ids.tolist(), *sequence.response_token_ids[:-1].tolist()]
        task = _task(sequence, request)
        answer = await self._ask(ids, task, reuse_prefix=True)
        # A prefix hit past the prompt leaves out positions whose hidden states were not kept: then all is read.
        if answer.num_cached >= task.num_prompt and np.isnan(answer.table[:, 0]).any():
            answer = await self._ask(ids, task, reuse_prefix=False)
        reused = min(answer.num_cached, task.num_prompt)
        metrics.tokens.labels("prompt_reused").inc(reused)
        metrics.tokens.labels("prompt_computed").inc(task.num_prompt - reused)
        return read_table(answer.table, task.columns, has_candidates=sequence.candidate_ids is not None)

    async def _ask(self, ids: list[int], task: ScoringTask, *, reuse_prefix: bool) -> _Answer:
        assert self._llm is not None
        # vLLM reads no prefix for such requests by default, since its own poolers would miss positions.
        parameters = PoolingParams(
            task=TASK,
            skip_reading_prefix_cache=not reuse_prefix,
            extra_kwargs={TASK_FIELD: msgspec.msgpack.encode(task)},
        )
        request_id = f"score-{next(self._request_ids)}"
        try:
            with self._progress.unit():
                outputs = [out async for out in self._llm.encode({"prompt_token_ids": ids}, parameters, request_id)]
        except VllmDeadError as error:
            raise EngineDeadError("the vLLM engine has died: restart this service") from error
        return _Answer(outputs[-1].outputs.data.numpy(), outputs[-1].num_cached_tokens or 0)

    def _load(self) -> EngineFacts:
        config = load_config(self._settings)
        self._set_environment()
        self._register(config)
        max_length = resolve_max_length(self._settings, config)
        self._llm = AsyncLLM.from_engine_args(self._arguments(max_length))
        vocab_size = self._llm.vllm_config.model_config.get_vocab_size()
        return EngineFacts(
            model=describe_model(self._settings, config, vocab_size, max_length),
            engine=EngineInfo("vllm", vllm.__version__, self._settings.teacher_dtype),
            features=FEATURES,
            max_top_k=vocab_size,
            memory_bytes=self._settings.teacher_memory_bytes or int(FREE_SHARE * available_bytes()),
            cache_unit=CacheUnit.SEQUENCE,
        )

    def _register(self, config: Any) -> None:
        architecture = config.architectures[0]
        try:
            register(architecture)
        except KeyError:
            raise SettingsError(
                f"POTSTILL_TEACHER_ENGINE: vllm has no model of the architecture {architecture}: use the torch engine"
            ) from None

    def _set_environment(self) -> None:
        # Bound to cores, this teacher and a student on one machine would take the same ones.
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        if self._settings.teacher_threads:
            os.environ["OMP_NUM_THREADS"] = str(self._settings.teacher_threads)

    def _arguments(self, max_model_len: int) -> AsyncEngineArgs:
        return AsyncEngineArgs(
            model=model_id(self._settings),
            revision=self._settings.teacher_revision,
            dtype=self._settings.teacher_dtype,
            runner="pooling",
            worker_cls=WORKER,
            hf_overrides={"head_dtype": "float32"},  # bfloat16 logits are an eighth apart at 16 and more
            max_model_len=max_model_len,
            max_num_batched_tokens=STEP_TOKENS,
            enable_chunked_prefill=True,
            enable_prefix_caching=True,
            block_size=CPU_BLOCK_TOKENS if current_platform.is_cpu() else None,
            enforce_eager=True,
            disable_log_stats=True,
            tensor_parallel_size=self._settings.teacher_tensor_parallel,
            gpu_memory_utilization=self._settings.teacher_gpu_memory_share,
            kv_cache_memory_bytes=self._settings.teacher_kv_cache_gib * 2**30 if current_platform.is_cpu() else None,
        )


def _task(sequence: ScoredSequence, request: ScoreRequest) -> ScoringTask:
    candidates = sequence.candidate_ids
    return ScoringTask(
        num_prompt=len(sequence.prompt_token_ids),
        targets=sequence.response_token_ids.tobytes(),
        candidates=b"" if candidates is None else candidates.tobytes(),
        temperature=request.temperature,
        top_k=request.top_k,
        entropy=request.entropy,
    )
