"""The vLLM engine: log-probabilities of prompt tokens, at temperature 1.

vLLM gives the log-probability of every *prompt* token, so prompt and response go in together as one prompt. It takes
these before sampling, where no temperature is applied, so this engine has none.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import vllm
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.logprobs import FlatLogprobs
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError as VllmDeadError

from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.capabilities import EngineInfo
from potstill.contracts.scoring import ScoreRequest, ScoreResponse, SequenceScore
from potstill.contracts.scoring import Sequence as ScoredSequence
from services.teacher import metrics
from services.teacher.engine import EngineDeadError, EngineFacts, Feature
from services.teacher.memory import FREE_SHARE, available_bytes
from services.teacher.model_facts import describe_model, load_config, model_id, resolve_max_length
from services.teacher.progress import Progress
from services.teacher.settings import TeacherSettings

FEATURES = frozenset({Feature.LOGPROBS, Feature.TOP_K})
MAX_TOP_K = 128
# Tokens of one engine step: vLLM holds full-vocabulary float32 rows for as many positions at once.
STEP_TOKENS = 1024
# One entry of FlatLogprobs: four lists of Python objects.
ENTRY_BYTES = 160
# Below this the mass outside the top k is rounding of float32 log-probabilities.
RESOLVED_MASS = 1e-6


@dataclass(frozen=True)
class _Answer:
    entries: FlatLogprobs
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
        await self._score(ScoredSequence(one, one), 0)  # the first request compiles
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
        tokens = sum(len(s.prompt_token_ids) + len(s.response_token_ids) for s in request.sequences)
        return tokens * (1 + request.top_k) * ENTRY_BYTES

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        try:
            async with asyncio.TaskGroup() as tasks:
                scoring = [tasks.create_task(self._score(sequence, request.top_k)) for sequence in request.sequences]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        return ScoreResponse(tuple(task.result() for task in scoring))

    async def _score(self, sequence: ScoredSequence, top_k: int) -> SequenceScore:
        num_prompt, num_response = len(sequence.prompt_token_ids), len(sequence.response_token_ids)
        if not num_response:
            return read_entries(FlatLogprobs(), sequence.response_token_ids, top_k)
        ids = [*sequence.prompt_token_ids.tolist(), *sequence.response_token_ids.tolist()]
        answer = await self._ask(ids, top_k, reuse_prefix=True)
        # Positions taken from the prefix cache have no log-probabilities. The first we need is predicted by the last
        # prompt token; where the cache reached further, the sequence is read whole.
        if answer.num_cached > num_prompt - 1:
            answer = await self._ask(ids, top_k, reuse_prefix=False)
        metrics.tokens.labels("prompt_reused").inc(answer.num_cached)
        metrics.tokens.labels("prompt_computed").inc(num_prompt - answer.num_cached)
        return read_entries(answer.entries[-num_response:], sequence.response_token_ids, top_k)

    async def _ask(self, ids: list[int], top_k: int, *, reuse_prefix: bool) -> _Answer:
        assert self._llm is not None
        parameters = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            prompt_logprobs=top_k,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        # vLLM reads no prefix for such requests by default, since they would miss positions; we look at which.
        parameters.skip_reading_prefix_cache = not reuse_prefix
        request_id = f"score-{next(self._request_ids)}"
        try:
            with self._progress.unit():
                outputs = [out async for out in self._llm.generate({"prompt_token_ids": ids}, parameters, request_id)]
        except VllmDeadError as error:
            raise EngineDeadError("the vLLM engine has died: restart this service") from error
        return _Answer(outputs[-1].prompt_logprobs, outputs[-1].num_cached_tokens or 0)

    def _load(self) -> EngineFacts:
        config = load_config(self._settings)
        max_length = resolve_max_length(self._settings, config)
        made_for = getattr(config.get_text_config(), "max_position_embeddings", None)
        # vLLM always samples one token more than it is given.
        max_model_len = max_length + 1 if made_for is None else min(max_length + 1, made_for)
        self._set_threads()
        self._llm = AsyncLLM.from_engine_args(self._arguments(max_model_len))
        vocab_size = self._llm.vllm_config.model_config.get_vocab_size()
        return EngineFacts(
            model=describe_model(self._settings, config, vocab_size, max_model_len - 1),
            engine=EngineInfo("vllm", vllm.__version__, self._settings.teacher_dtype),
            features=FEATURES,
            max_top_k=min(MAX_TOP_K, vocab_size),
            memory_bytes=self._settings.teacher_memory_bytes or int(FREE_SHARE * available_bytes()),
        )

    def _set_threads(self) -> None:
        # Bound to cores, this teacher and a student on one machine would take the same ones.
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        if self._settings.teacher_threads:
            os.environ["OMP_NUM_THREADS"] = str(self._settings.teacher_threads)

    def _arguments(self, max_model_len: int) -> AsyncEngineArgs:
        return AsyncEngineArgs(
            model=model_id(self._settings),
            revision=self._settings.teacher_revision,
            dtype=self._settings.teacher_dtype,
            hf_overrides={"head_dtype": "float32"},  # bfloat16 logits are an eighth apart at 16 and more
            max_model_len=max_model_len,
            max_num_batched_tokens=STEP_TOKENS,
            enable_chunked_prefill=True,
            enable_prefix_caching=True,
            max_logprobs=MAX_TOP_K,
            enforce_eager=True,
            disable_log_stats=True,
            tensor_parallel_size=self._settings.teacher_tensor_parallel,
            gpu_memory_utilization=self._settings.teacher_gpu_memory_share,
            kv_cache_memory_bytes=self._settings.teacher_kv_cache_gib * 2**30 if current_platform.is_cpu() else None,
        )


def read_entries(entries: FlatLogprobs, response: TokenIds, top_k: int) -> SequenceScore:
    """Turn vLLM's entries of T positions into scores.

    A position holds the actual token's entry and the top k, in an order of vLLM's own: each is found by its id. A
    token without an entry is NaN.
    """
    logprobs = np.full(len(response), np.nan, dtype=np.float32)
    top_ids = np.zeros((len(response), top_k), dtype=np.int32)
    top_logprobs = np.full((len(response), top_k), np.nan, dtype=np.float32)
    for position, token in enumerate(response.tolist()):
        span = slice(entries.start_indices[position], entries.end_indices[position])
        by_id = dict(zip(entries.token_ids[span], entries.logprobs[span], strict=True))
        logprobs[position] = by_id.get(token, math.nan)
        ranked = sorted(by_id.items(), key=lambda entry: -entry[1])[:top_k]
        for rank, (token_id, value) in enumerate(ranked):
            top_ids[position, rank], top_logprobs[position, rank] = token_id, value
    score = SequenceScore(logprobs=LogProbs.of(logprobs))
    if not top_k:
        return score
    return msgspec.structs.replace(
        score,
        top_ids=TokenIds.of(top_ids),
        top_logprobs=LogProbs.of(top_logprobs),
        tail_logprobs=LogProbs.of(tail_logprobs(top_logprobs)),
    )


def tail_logprobs(top_logprobs: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, Any]:
    """log(1 - sum(exp(top))) of each row [T, K]; NaN where that mass is too small to follow from the top k."""
    mass = np.exp(top_logprobs.astype(np.float64)).sum(-1)
    rest = np.where(1.0 - mass > RESOLVED_MASS, 1.0 - mass, np.nan)
    logarithm: np.ndarray[Any, Any] = np.log(rest)
    return logarithm
