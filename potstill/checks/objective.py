"""What a user should know of an objective that can be trained but is probably not what was meant."""

from __future__ import annotations

from potstill.checks.findings import Findings
from potstill.contracts.job import JobSpec
from potstill.contracts.objective import UNSTABLE


def check_objective(spec: JobSpec) -> Findings:
    """Warnings only: what cannot be trained is refused by the spec itself."""
    findings, objective = Findings(), spec.resolved_objective
    for name in spec.teachers:
        scale = spec.reward_scale(name)
        if scale > UNSTABLE:
            findings.warnings.append(
                f"teachers.{name}.lambda is {scale:g}: extrapolation above {UNSTABLE:g} was unstable where it was "
                f"published, which chose 1.25"
            )
    if spec.sampling.n == 1 and objective.needs_group:
        findings.warnings.append(
            "sampling.n is 1, so the group advantage of a sample is its score and compares it with no other: "
            "raise n, or leave out what needs a group (gate `relative`, group_scale, outcome_weight)"
        )
    if objective.reference_kl != "off" and objective.reference_kl_weight == 0:
        findings.warnings.append("objective.reference_kl_weight is 0: the KL to the reference is measured, not trained")
    return findings
