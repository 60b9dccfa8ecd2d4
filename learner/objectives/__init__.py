"""Objectives: pure functions on tensors, one idea a file, composed by an `ObjectiveSpec`.

A new signal, gate, group scale, importance ratio, divergence, reference KL or aggregation is one function and one line
in its registry. Shapes: M tokens of the samples of one micro-batch, without padding; N samples; K candidates.
"""

from __future__ import annotations

from collections.abc import Mapping

from learner.objectives import aggregation, divergence, gate, group, importance, reference_kl, signal
from learner.objectives.aggregation import Aggregation
from learner.objectives.divergence import Divergence
from learner.objectives.importance import Ratio
from learner.objectives.objective import Gate, GroupScale, Objective, ReferenceKl, Route, Signal
from learner.objectives.terms import terms_of
from potstill.contracts.job import JobSpec
from potstill.contracts.objective import EXTRAPOLATION, ObjectiveSpec
from potstill.contracts.objective import resolve as resolve_spec

SIGNALS: dict[str, Signal] = {"opd": signal.opd, "gopd": signal.gopd}
GATES: dict[str, Gate] = {
    "off": gate.off,
    "correctness": gate.correctness,
    "inverse": gate.inverse,
    "relative": gate.relative,
}
GROUP_SCALES: dict[str, GroupScale] = {"off": group.unscaled, "magnitude": group.magnitude}
RATIOS: dict[str, Ratio] = {"off": importance.off, "token": importance.token, "sequence": importance.sequence}
DIVERGENCES: dict[str, Divergence] = {
    "reverse_kl": divergence.reverse_kl,
    "forward_kl": divergence.forward_kl,
    "jsd": divergence.jsd,
    "skew_forward_kl": divergence.skew_forward_kl,
    "skew_reverse_kl": divergence.skew_reverse_kl,
}
REFERENCE_KLS: dict[str, ReferenceKl] = {"k1": reference_kl.k1, "k2": reference_kl.k2, "k3": reference_kl.k3}
AGGREGATIONS: dict[str, Aggregation] = {
    "token_mean": aggregation.token_mean,
    "sequence_mean_token_mean": aggregation.sequence_mean_token_mean,
    "sequence_mean_token_sum": aggregation.sequence_mean_token_sum,
}


def resolve(
    spec: ObjectiveSpec, *, routes: Mapping[str, Route] | None = None, max_tokens: int | None = None
) -> Objective:
    """The preset with the parts that the spec overrides. `max_tokens` is the longest response a job may sample.

    Without `routes` every teacher has the objective's own λ and a reference that comes with the samples.
    """
    resolved = resolve_spec(spec)
    if resolved.aggregation == "sequence_mean_token_sum" and max_tokens is None:
        raise ValueError("`sequence_mean_token_sum` divides by max_tokens, which was not given")
    return Objective(
        spec=resolved,
        signal=SIGNALS[resolved.signal],
        gate=GATES[resolved.gate],
        group_scale=GROUP_SCALES[resolved.group_scale],
        importance=RATIOS[resolved.importance],
        divergence=DIVERGENCES[resolved.divergence],
        reference_kl=REFERENCE_KLS.get(resolved.reference_kl),
        aggregation=AGGREGATIONS[resolved.aggregation],
        terms=terms_of(resolved),
        max_tokens=max_tokens or 1,
        routes=routes,
        default_route=Route(EXTRAPOLATION if resolved.signal == "gopd" else 1.0),
    )


def objective_of(job: JobSpec) -> Objective:
    """The objective of a job, with each teacher's λ and reference."""
    routes = {
        name: Route(job.reward_scale(name), reference_is_base=teacher.reference == "base")
        for name, teacher in job.teachers.items()
    }
    return resolve(job.objective, routes=routes, max_tokens=job.sampling.max_tokens)
