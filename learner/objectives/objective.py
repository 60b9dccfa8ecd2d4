"""An objective: its parts, composed in a fixed order. Formulas: docs/algorithms.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from learner.errors import JobError
from learner.objectives.aggregation import Aggregation
from learner.objectives.candidates import Candidates, divergence
from learner.objectives.divergence import Divergence
from learner.objectives.importance import Ratio
from learner.objectives.loss import clipped_policy_gradient
from learner.objectives.terms import Term
from learner.objectives.tokens import Tokens
from potstill.contracts.objective import ResolvedObjective

Signal = Callable[[Tokens], Tensor]
Gate = Callable[[Tensor, Tensor, Tensor], Tensor]  # signal, correct, group advantage
GroupScale = Callable[[Tensor, float], Tensor]  # group advantage, u
ReferenceKl = Callable[[Tensor, Tensor], Tensor]  # S with gradient, R


@dataclass(frozen=True)
class Route:
    """How the samples of one teacher are weighed."""

    reward_scale: float = 1.0  # λ
    reference_is_base: bool = False  # R is the learner's to compute, without the adapter


@dataclass(frozen=True)
class Advantage:
    """What the objective made of each token on the way from the teacher's values to the loss. No gradient."""

    signal_M: Tensor  # d
    bounded_M: Tensor  # after `clip_signal`
    gated_M: Tensor
    scale_M: Tensor
    value_M: Tensor  # the advantage, before the baseline


@dataclass(frozen=True)
class Losses:
    """One loss a token and term, with gradient; 0 where the token does not count."""

    advantage: Advantage
    ratio_M: Tensor  # importance ratio before the cap
    weight_M: Tensor  # after it
    divergence_M: Tensor | None  # before the group scale
    by_term: Mapping[Term, Tensor]


@dataclass(frozen=True)
class Objective:
    """A resolved objective."""

    spec: ResolvedObjective
    signal: Signal
    gate: Gate
    group_scale: GroupScale
    importance: Ratio
    divergence: Divergence
    reference_kl: ReferenceKl | None
    aggregation: Aggregation
    terms: tuple[Term, ...]  # the main one first
    max_tokens: int
    routes: Mapping[str, Route] | None = None  # None: every teacher has the default
    default_route: Route = field(default_factory=Route)

    @property
    def weights(self) -> dict[Term, float]:
        """Of each term in the loss."""
        fixed = {Term.REFERENCE_KL: self.spec.reference_kl_weight, Term.ENTROPY: self.spec.entropy_weight}
        return {term: fixed.get(term, 1.0) for term in self.terms}

    def route(self, teacher: str) -> Route:
        """Raises JobError for a teacher that the job does not have."""
        if self.routes is None:
            return self.default_route
        if teacher not in self.routes:
            raise JobError("unknown_teacher", f"a group names the teacher {teacher!r}, which the job does not have")
        return self.routes[teacher]

    def signal_needs_reference(self, route: Route) -> bool:
        return self.spec.signal == "gopd" and route.reward_scale != 1.0

    def asks_reference(self, route: Route) -> bool:
        return self.signal_needs_reference(route) or self.spec.reference_kl != "off"

    def is_correct(self, score: float) -> bool:
        """Strictly above the threshold."""
        return score > self.spec.threshold

    def advantage(self, tokens: Tokens) -> Advantage:
        """In the fixed order: signal, bound, gate, group scale, outcome."""
        spec = self.spec
        signal_M = self.signal(tokens)
        bounded_M = signal_M if spec.clip_signal is None else signal_M.clamp(-spec.clip_signal, spec.clip_signal)
        gated_M = self.gate(bounded_M, tokens.correct_M, tokens.group_advantage_M)
        scale_M = self.group_scale(tokens.group_advantage_M, spec.group_scale_offset)
        distilled_M = gated_M * scale_M if spec.loss == "policy_gradient" else torch.zeros_like(signal_M)
        value_M = distilled_M + spec.outcome_weight * tokens.group_advantage_M
        return Advantage(signal_M, bounded_M, gated_M, scale_M, value_M)

    def losses(
        self,
        student_M: Tensor,
        entropy_M: Tensor,
        tokens: Tokens,
        counted: Mapping[Term, Tensor],
        *,
        candidates: Candidates | None = None,
        baseline: float = 0.0,
    ) -> Losses:
        """The terms of one micro-batch. `student_M`, the candidates and, where it is a term, entropy carry gradients.

        Importance weights belong to what is a mean over sampled tokens: policy gradient and reference KL.
        """
        advantage = self.advantage(tokens)
        by_term: dict[Term, Tensor] = {}
        divergence_M = None
        for term in self.terms:
            match term:
                case Term.POLICY_GRADIENT:
                    surrogate_M = self._policy_gradient(student_M, tokens, advantage.value_M - baseline)
                    loss_M = self._weight(tokens, counted[term]) * surrogate_M
                case Term.DIVERGENCE:
                    assert candidates is not None, "the batch has none"
                    divergence_M = divergence(candidates, self.divergence, self._mix)
                    loss_M = advantage.scale_M * divergence_M
                case Term.REFERENCE_KL:
                    assert self.reference_kl is not None, "it is a term"
                    loss_M = self._weight(tokens, counted[term]) * self.reference_kl(student_M, tokens.reference_M)
                case Term.ENTROPY:
                    loss_M = -entropy_M
            by_term[term] = loss_M.where(counted[term], 0.0)
        main_M = counted[self.terms[0]] & tokens.behaviour_known_M
        return Losses(advantage, self._ratio(tokens, main_M), self._weight(tokens, main_M), divergence_M, by_term)

    def _ratio(self, tokens: Tokens, counted_M: Tensor) -> Tensor:
        log_ratio_M = (tokens.student_M - tokens.behaviour_M).where(counted_M, 0.0)
        return self.importance(log_ratio_M, tokens.sample_M, tokens.num_samples)

    def _weight(self, tokens: Tokens, counted_M: Tensor) -> Tensor:
        return self._ratio(tokens, counted_M).clamp(max=self.spec.importance_cap)

    def _policy_gradient(self, student_M: Tensor, tokens: Tokens, advantage_M: Tensor) -> Tensor:
        return clipped_policy_gradient(
            student_M,
            tokens.student_M,
            advantage_M,
            clip_low=self.spec.clip_low,
            clip_high=self.spec.clip_high,
            dual_clip=self.spec.dual_clip,
        )

    @property
    def _mix(self) -> float:
        return self.spec.beta if self.spec.divergence == "jsd" else self.spec.skew

    def total(self, losses: Losses, shares: Mapping[Term, Tensor]) -> Tensor:
        """This micro-batch's part of the step's loss; it has a gradient even where nothing counts."""
        parts = [weight * (losses.by_term[term] * shares[term]).sum() for term, weight in self.weights.items()]
        return torch.stack(parts).sum()
