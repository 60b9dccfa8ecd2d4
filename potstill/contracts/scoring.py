"""What a teacher service is asked, and what it answers."""

from __future__ import annotations

import msgspec

from potstill.contracts.arrays import LogProbs, TokenIds


class Sequence(msgspec.Struct, frozen=True):
    prompt_token_ids: TokenIds  # [P], the teacher's own context
    response_token_ids: TokenIds  # [T], the student's ids, never tokenised again
    candidate_ids: TokenIds | None = None  # [T, K]


class ScoreRequest(msgspec.Struct, frozen=True):
    sequences: tuple[Sequence, ...]
    temperature: float = 1.0
    top_k: int = 0
    entropy: bool = False


class SequenceScore(msgspec.Struct, frozen=True, omit_defaults=True):
    logprobs: LogProbs  # [T]
    candidate_logprobs: LogProbs | None = None  # [T, K]
    top_ids: TokenIds | None = None  # [T, K]
    top_logprobs: LogProbs | None = None  # [T, K]
    tail_logprobs: LogProbs | None = None  # [T], log of the mass outside the top k
    entropy: LogProbs | None = None  # [T], nats


class ScoreResponse(msgspec.Struct, frozen=True):
    sequences: tuple[SequenceScore, ...]
