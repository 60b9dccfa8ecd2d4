"""Objectives: pure functions on tensors, one idea a file, composed by an `ObjectiveSpec`.

A new signal, gate, importance ratio or aggregation is one function and one line in its registry; what belongs between
gate and loss (group scale, outcome) goes into `advantage`. Shapes: M tokens of the samples of one micro-batch, without
padding; N samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from learner.objectives.aggregation import token_mean
from learner.objectives.gate import GATES, Gate
from learner.objectives.importance import RATIOS, Ratio
from learner.objectives.loss import clipped_policy_gradient
from learner.objectives.signal import TokenLogprobs, opd
from potstill.contracts.objective import ObjectiveSpec, ResolvedObjective
from potstill.contracts.objective import resolve as resolve_spec

SIGNALS: dict[str, Callable[[TokenLogprobs], Tensor]] = {"opd": opd}
AGGREGATIONS = {"token_mean": token_mean}


@dataclass(frozen=True)
class TokenTerms:
    """What the objective made of each token, for the loss and for the report. No gradient but in `loss_M`."""

    signal_M: Tensor
    advantage_M: Tensor
    ratio_M: Tensor  # importance ratio before the cap
    weight_M: Tensor  # after it
    loss_M: Tensor


@dataclass(frozen=True)
class Objective:
    """A resolved objective."""

    spec: ResolvedObjective
    signal: Callable[[TokenLogprobs], Tensor]
    gate: Gate
    importance: Ratio
    aggregate: Callable[[Tensor, Tensor, int], Tensor]

    @property
    def needs_score(self) -> bool:
        return self.gate.needs_score

    def is_correct(self, score: float) -> bool:
        """Strictly above the threshold."""
        return score > self.spec.threshold

    def advantage(self, tokens: TokenLogprobs, correct_M: Tensor) -> tuple[Tensor, Tensor]:
        """Signal and advantage of each token, in the fixed order signal, gate."""
        signal_M = self.signal(tokens)
        return signal_M, self.gate.apply(signal_M, correct_M)

    def terms(
        self,
        student_M: Tensor,
        tokens: TokenLogprobs,
        correct_M: Tensor,
        counted_M: Tensor,
        sample_M: Tensor,
        num_samples: int,
    ) -> TokenTerms:
        """One loss a token. `student_M` carries the gradient; tokens that do not count have loss 0."""
        signal_M, advantage_M = self.advantage(tokens, correct_M)
        advantage_M = advantage_M.where(counted_M, 0.0)
        log_ratio_M = (tokens.student_M - tokens.behaviour_M).where(counted_M, 0.0)
        ratio_M = self.importance(log_ratio_M, sample_M, num_samples)
        weight_M = ratio_M.clamp(max=self.spec.importance_cap)
        surrogate_M = clipped_policy_gradient(
            student_M,
            tokens.student_M,
            advantage_M,
            clip_low=self.spec.clip_low,
            clip_high=self.spec.clip_high,
            dual_clip=self.spec.dual_clip,
        )
        return TokenTerms(signal_M, advantage_M, ratio_M, weight_M, (weight_M * surrogate_M).where(counted_M, 0.0))


def resolve(spec: ObjectiveSpec) -> Objective:
    """The preset with the parts that the spec overrides."""
    resolved = resolve_spec(spec)
    return Objective(
        spec=resolved,
        signal=SIGNALS[resolved.signal],
        gate=GATES[resolved.gate],
        importance=RATIOS[spec.importance],
        aggregate=AGGREGATIONS[spec.aggregation],
    )


def correct_mask(objective: Objective, score_N: Tensor, sample_M: Tensor) -> Tensor:
    """Whether each token belongs to a correct sample; NaN scores are not."""
    return (torch.nan_to_num(score_N, nan=-torch.inf) > objective.spec.threshold)[sample_M]
