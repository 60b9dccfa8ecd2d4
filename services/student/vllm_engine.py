"""The vLLM engine, on GPUs or CPUs. Samples depend on seed and weights, and through rounding on their company."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path
from typing import Any

import msgspec
import vllm
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.logprobs import Logprob
from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError as VllmDeadError

from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.capabilities import EngineInfo, ModelInfo
from potstill.contracts.generation import FinishReason, Prompt, Sample, Sampling
from potstill.service.errors import UnavailableError
from potstill.service.logs import get_logger
from services.student.engine import EngineDeadError, EngineFacts, sample_seed
from services.student.model_facts import describe_model, fetch_model
from services.student.policy import PolicyFolder, PolicyKind
from services.student.settings import StudentSettings
from services.student.weight_files import (
    TIED_HEAD,
    WeightsRejectedError,
    read_folder_shapes,
    read_shapes,
    require_adapter_fits,
    require_same_tensors,
)

FEATURES = frozenset({"logprobs", "temperature", "top_k", "top_p", "policy"})
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # the sizes vLLM keeps room for
WORKER_EXTENSION = "services.student.vllm_worker.PolicyWorker"
HEALTH_SECONDS = 1.0
DIED = "the vLLM engine has died: this service must be started again"

log = get_logger("student")


class VllmEngine:
    """See services.student.engine.Engine."""

    def __init__(self, settings: StudentSettings) -> None:
        self._settings = settings
        self._llm: AsyncLLM | None = None
        self._folder = Path()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._base = Path()  # the folder whose full weights are loaded
        self._adapter: LoRARequest | None = None
        self._policy_version = 0
        self._request_ids = itertools.count()
        self._adapter_ids = itertools.count(1)
        self._is_loading_policy = False

    async def start(self) -> EngineFacts:
        settings = self._settings
        self._folder = self._base = await asyncio.to_thread(fetch_model, settings)
        model = await asyncio.to_thread(describe_model, settings, self._folder)
        self._shapes = read_folder_shapes(self._folder)
        self._llm = await asyncio.to_thread(self._launch, model)
        await self.generate(Prompt(TokenIds.of([0])), Sampling(max_tokens=1), 0)  # the first request compiles
        lora = {"lora"} if settings.student_max_lora_rank else set()
        info = EngineInfo(name="vllm", version=vllm.__version__, dtype=settings.student_dtype)
        return EngineFacts(model=model, engine=info, features=FEATURES | lora)

    async def stop(self) -> None:
        if self._llm is not None:
            llm, self._llm = self._llm, None
            await asyncio.to_thread(llm.shutdown)

    async def alive(self) -> None:
        llm = self._require()
        try:
            await llm.check_health()
            if not self._is_loading_policy:  # a load is one long step of the engine
                await _round_trip(llm)
        except VllmDeadError as error:
            raise EngineDeadError(DIED) from error

    async def generate(self, prompt: Prompt, sampling: Sampling, top_k: int) -> tuple[Sample, ...]:
        # One request a sample: vLLM's own n gives sample i the seed + i, which is sample 0 of the next seed.
        tasks = [
            asyncio.create_task(self._sample(prompt, sampling, top_k, sample_seed(prompt.seed, index)))
            for index in range(prompt.n)
        ]
        try:
            return tuple(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def load_policy(self, policy: PolicyFolder) -> None:
        llm = self._require()
        await asyncio.to_thread(self._check_fits, policy)
        self._is_loading_policy = True
        try:
            # Requests whose callers hung up may still be in the engine: the pause waits for them.
            await llm.pause_generation(mode="wait", clear_cache=True)
            await self._swap(policy)
            await llm.reset_prefix_cache()
            await llm.resume_generation()
        except VllmDeadError as error:
            raise EngineDeadError(DIED) from error
        finally:
            self._is_loading_policy = False

    async def _sample(self, prompt: Prompt, sampling: Sampling, top_k: int, seed: int) -> Sample:
        llm, version = self._require(), self._policy_version
        parameters = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            stop_token_ids=list(sampling.stop_token_ids),
            ignore_eos=True,  # only the request says what ends a sample
            seed=seed,
            logprobs=top_k,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        ids = {"prompt_token_ids": prompt.token_ids.tolist()}
        request_id = f"sample-{next(self._request_ids)}"
        try:
            outputs = [output async for output in llm.generate(ids, parameters, request_id, lora_request=self._adapter)]
        except VllmDeadError as error:
            raise EngineDeadError(DIED) from error
        return _read(outputs[-1].outputs[0], top_k, version)

    def _check_fits(self, policy: PolicyFolder) -> None:
        """vLLM would load what it can of weights that do not fit, so they are turned away before."""
        found = read_shapes(policy.weights)
        if policy.kind is PolicyKind.FULL:
            require_same_tensors(policy.weights, found, self._shapes, optional=(TIED_HEAD,))
        else:
            require_adapter_fits(policy.weights, found, self._shapes, self._settings.student_max_lora_rank)

    async def _swap(self, policy: PolicyFolder) -> None:
        is_full = policy.kind is PolicyKind.FULL
        before = self._base, self._adapter, self._policy_version
        try:
            await self._serve(
                policy.folder if is_full else self._folder, None if is_full else self._new_adapter(policy)
            )
            self._policy_version = policy.version
        except VllmDeadError:
            raise
        except Exception as error:
            base, adapter, self._policy_version = before
            await self._restore(base, adapter)
            raise WeightsRejectedError(f"vLLM could not load {policy.folder}: {error}") from error

    async def _serve(self, base: Path, adapter: LoRARequest | None, *, reload: bool = False) -> None:
        """Make `base` with `adapter` the weights that serve."""
        llm = self._require()
        if self._adapter is not None:
            await llm.remove_lora(self._adapter.lora_int_id)
        if reload or base != self._base or adapter is None:
            await llm.collective_rpc("load_full_policy", args=(str(base),))
        if adapter is not None:
            await llm.add_lora(adapter)
        self._base, self._adapter = base, adapter

    async def _restore(self, base: Path, adapter: LoRARequest | None) -> None:
        self._adapter = None
        try:
            await self._serve(base, adapter, reload=True)
        except Exception as error:
            log.critical("the weights that served could not be restored", exc_info=error)
            raise EngineDeadError("a policy failed to load and the one before could not be restored") from error
        await self._require().resume_generation()

    def _new_adapter(self, policy: PolicyFolder) -> LoRARequest:
        """Its name and number are never used again, so no cache can take it for another."""
        number = next(self._adapter_ids)
        name = f"{policy.family.parent.name}-{policy.version:06d}-{number}"
        return LoRARequest(lora_name=name, lora_int_id=number, lora_path=str(policy.folder))

    def _launch(self, model: ModelInfo) -> AsyncLLM:
        settings = self._settings
        _set_environment(settings)
        lora_rank = settings.student_max_lora_rank
        return AsyncLLM.from_engine_args(
            AsyncEngineArgs(
                model=str(self._folder),
                runner="generate",
                skip_tokenizer_init=True,
                dtype=settings.student_dtype,
                hf_overrides={"head_dtype": "float32"},  # bfloat16 logits are an eighth apart at 16 and more
                max_model_len=model.max_length,
                max_num_seqs=settings.student_slots,
                max_logprobs=max(1, settings.student_max_top_k),
                logprobs_mode="processed_logprobs",  # at the sampling temperature
                generation_config="vllm",  # no top_p or top_k of the model's own
                tensor_parallel_size=settings.student_tensor_parallel,
                gpu_memory_utilization=settings.student_gpu_memory_share,
                enforce_eager=current_platform.is_cpu(),
                enable_lora=lora_rank > 0,
                max_lora_rank=next((rank for rank in LORA_RANKS if rank >= lora_rank), LORA_RANKS[-1]),
                max_loras=1,
                worker_extension_cls=WORKER_EXTENSION,
                disable_log_stats=True,
            )
        )

    def _require(self) -> AsyncLLM:
        if self._llm is None:
            raise UnavailableError("the model is still loading", code="loading")
        return self._llm


async def _round_trip(llm: AsyncLLM) -> None:
    """A question to the engine's process. Raises VllmDeadError soon after that process has ended."""
    asking = asyncio.ensure_future(llm.is_sleeping())
    try:
        while not asking.done():
            await asyncio.wait({asking}, timeout=HEALTH_SECONDS)
            await llm.check_health()  # a question that a dying process leaves open is never answered
        await asking
    finally:
        asking.cancel()


def _set_environment(settings: StudentSettings) -> None:
    """What vLLM's own process reads when it starts."""
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # this process has threads by now
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(settings.student_kv_cache_gib))
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if settings.student_threads:
        os.environ["OMP_NUM_THREADS"] = str(settings.student_threads)


def _read(output: CompletionOutput, top_k: int, policy_version: int) -> Sample:
    entries: list[dict[int, Logprob]] = output.logprobs or []
    chosen = [entry[token].logprob for entry, token in zip(entries, output.token_ids, strict=True)]
    sample = Sample(
        token_ids=TokenIds.of(output.token_ids),
        logprobs=LogProbs.of(chosen),
        finish_reason=FinishReason(output.finish_reason or FinishReason.ABORT),
        policy_version=policy_version,
    )
    if top_k == 0:
        return sample
    tops = [_largest(entry, top_k) for entry in entries]
    return msgspec.structs.replace(
        sample,
        top_ids=TokenIds.of([[token for token, _ in top] for top in tops]),
        top_logprobs=LogProbs.of([[logprob for _, logprob in top] for top in tops]),
    )


def _largest(entry: dict[int, Logprob], count: int) -> list[tuple[int, Any]]:
    """The `count` largest of an entry, which also holds the token that was drawn."""
    return sorted(((token, known.logprob) for token, known in entry.items()), key=lambda pair: -pair[1])[:count]
