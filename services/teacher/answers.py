"""The numbers of an answer: how much memory they take, and what they are where nothing was computed."""

from __future__ import annotations

import numpy as np

from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.scoring import ScoreRequest, Sequence, SequenceScore

# A value of an answer: in its chunk, joined, in its sequence, encoded.
VALUE_BYTES = 4 * 4
# A candidate: its id as int32 and int64.
CANDIDATE_BYTES = 12


def answer_bytes(request: ScoreRequest) -> int:
    """The numbers of an answer on their way out, and the candidates, padded to the widest."""
    per_token = 1 + 2 * request.top_k + (request.top_k > 0) + request.entropy
    tokens = sum(len(sequence.response_token_ids) for sequence in request.sequences)
    widest = max((s.candidate_ids.shape[-1] for s in request.sequences if s.candidate_ids is not None), default=0)
    return tokens * (per_token * VALUE_BYTES + widest * (VALUE_BYTES + CANDIDATE_BYTES))


def empty_score(sequence: Sequence, request: ScoreRequest) -> SequenceScore:
    """What an empty response is answered with: every field that was asked for, without positions."""
    none, no_ids = LogProbs.of([]), TokenIds.of(np.empty((0, request.top_k)))
    return SequenceScore(
        logprobs=none,
        candidate_logprobs=None if sequence.candidate_ids is None else LogProbs.of(sequence.candidate_ids),
        top_ids=no_ids if request.top_k else None,
        top_logprobs=LogProbs.of(no_ids) if request.top_k else None,
        tail_logprobs=none if request.top_k else None,
        entropy=none if request.entropy else None,
    )
