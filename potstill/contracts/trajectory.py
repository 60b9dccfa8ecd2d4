"""A scored trajectory group: every sample of one ticket with all that the objective needs."""

from __future__ import annotations

import msgspec

from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.generation import FinishReason
from potstill.contracts.ticket import TicketId
from potstill.contracts.verification import Verdict


class Trajectory(msgspec.Struct, frozen=True):
    """One sample. T is its number of response tokens."""

    token_ids: TokenIds  # [T]
    behaviour_logprobs: LogProbs  # [T], B in docs/algorithms.md
    finish_reason: FinishReason
    policy_version: int
    text: str  # decoded, for people and for the verifier
    verdict: Verdict
    score: float | None  # None: could not be verified
    teacher_logprobs: LogProbs | None = None  # [T], T; None in eval groups
    reference_logprobs: LogProbs | None = None  # [T], R; None where the objective has no reference
    candidate_ids: TokenIds | None = None  # [T, K]; -1 where a position has fewer
    candidate_teacher_logprobs: LogProbs | None = None  # [T, K], NaN where there is no candidate or no value
    answer: str | None = None  # what the verifier took for the answer, in a form that equal answers share


class Timings(msgspec.Struct, frozen=True):
    """Seconds, for the pipeline's metrics."""

    queued: float = 0.0
    generate: float = 0.0
    score: float = 0.0
    verify: float = 0.0


class TrajectoryGroup(msgspec.Struct, frozen=True):
    ticket: TicketId
    problem_id: str
    teacher: str | None
    prompt_token_ids: TokenIds  # [P], the student's context
    trajectories: tuple[Trajectory, ...]
    issued_at: float
    completed_at: float
    worker: str
    timings: Timings = Timings()
    tombstone: str | None = None  # why this ticket could not be fulfilled; then there are no trajectories
