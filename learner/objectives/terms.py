"""The terms of a loss, and which tokens each of them counts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from potstill.contracts.objective import ResolvedObjective

Mask = NDArray[np.bool_]


class Term(StrEnum):
    POLICY_GRADIENT = "policy_gradient"
    DIVERGENCE = "divergence"
    REFERENCE_KL = "reference_kl"
    ENTROPY = "entropy"


def terms_of(spec: ResolvedObjective) -> tuple[Term, ...]:
    """The terms of an objective, its main one first."""
    wanted = {
        Term.DIVERGENCE: spec.loss == "divergence",
        Term.POLICY_GRADIENT: spec.loss == "policy_gradient" or spec.outcome_weight > 0,
        Term.REFERENCE_KL: spec.reference_kl != "off",
        Term.ENTROPY: spec.entropy_weight > 0,
    }
    return tuple(term for term, is_wanted in wanted.items() if is_wanted)


@dataclass(frozen=True)
class Known:
    """Which values of one sample's T tokens could be had."""

    teacher_T: Mask
    behaviour_T: Mask
    reference_T: Mask
    candidates_T: Mask  # at least one candidate has a teacher's value
    scored: bool
    signal_needs_reference: bool


def counted(term: Term, spec: ResolvedObjective, known: Known) -> Mask:
    """The tokens that have all that the term needs, [T]."""
    everything: Mask = np.ones_like(known.teacher_T)
    match term:
        case Term.POLICY_GRADIENT:
            has_signal = known.teacher_T & (known.reference_T | (not known.signal_needs_reference))
            needed = has_signal if spec.loss == "policy_gradient" else everything
            return needed & known.behaviour_T & (known.scored or not spec.needs_score)
        case Term.DIVERGENCE:
            return known.candidates_T & (known.scored or not spec.needs_score)
        case Term.REFERENCE_KL:
            return known.reference_T & known.behaviour_T
        case Term.ENTROPY:
            return everything
