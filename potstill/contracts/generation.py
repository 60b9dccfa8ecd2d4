"""What the student service is asked, and what it answers."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from potstill.contracts.arrays import LogProbs, TokenIds


class FinishReason(StrEnum):
    """Why a sample ended."""

    STOP = "stop"  # it wrote a stop token, which is its last id
    LENGTH = "length"  # it reached max_tokens
    ABORT = "abort"  # the request was cancelled


class PolicyRef(msgspec.Struct, frozen=True):
    """A published version of the student's weights."""

    version: int  # optimizer steps taken
    uri: str  # file:// folder under the artifacts root


class Prompt(msgspec.Struct, frozen=True):
    token_ids: TokenIds  # [P]
    n: int = 1
    seed: int = 0  # sample i of the prompt is drawn from (seed, i)


class Sampling(msgspec.Struct, frozen=True):
    temperature: float = 1.0  # 0 is greedy
    max_tokens: int = 64
    stop_token_ids: tuple[int, ...] = ()
    top_p: float = 1.0  # below 1 for evaluation only: what is trained on is sampled from the policy itself


class GenerateRequest(msgspec.Struct, frozen=True):
    prompts: tuple[Prompt, ...]
    sampling: Sampling = Sampling()
    policy: PolicyRef | None = None  # None: whatever is loaded
    top_k: int = 0


class Sample(msgspec.Struct, frozen=True):
    token_ids: TokenIds  # [T], the stop token included
    logprobs: LogProbs  # [T], of the distribution drawn from: temperature and top_p applied
    finish_reason: FinishReason
    policy_version: int
    top_ids: TokenIds | None = None  # [T, K]
    top_logprobs: LogProbs | None = None  # [T, K]


class PromptSamples(msgspec.Struct, frozen=True):
    samples: tuple[Sample, ...]


class GenerateResponse(msgspec.Struct, frozen=True):
    prompts: tuple[PromptSamples, ...]
