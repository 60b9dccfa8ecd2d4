"""The formula that a job trains, in plain text. The symbols are those of docs/algorithms.md."""

from __future__ import annotations

from collections.abc import Iterator

from potstill.contracts.job import JobSpec
from potstill.contracts.objective import ResolvedObjective

DIVERGENCES = {
    "reverse_kl": "KL(student || teacher)",
    "forward_kl": "KL(teacher || student)",
    "jsd": "{beta:g} KL(teacher || m) + {rest:g} KL(student || m), m = {beta:g} teacher + {rest:g} student",
    "skew_forward_kl": "KL(teacher || {skew:g} teacher + {kept:g} student)",
    "skew_reverse_kl": "KL(student || {skew:g} student + {kept:g} teacher)",
}
REFERENCE_KL = {"k1": "(S' - R) ∇S as a reward", "k2": "(S - R)² / 2", "k3": "exp(R - S) - 1 - (R - S)"}
AGGREGATIONS = {
    "token_mean": "mean over all counted tokens of the step",
    "sequence_mean_token_mean": "mean over samples of the mean over their tokens",
    "sequence_mean_token_sum": "mean over samples of the sum over their tokens / {max_tokens}",
}


def formula(spec: JobSpec, teacher: str) -> list[str]:
    """One line for each step from a teacher's values to the loss of one of its samples."""
    objective = spec.resolved_objective
    lines = [_divergence(objective)] if objective.loss == "divergence" else [*_advantage(spec, teacher)]
    lines += _rest(objective)
    return [*lines, "aggregate = " + AGGREGATIONS[objective.aggregation].format(max_tokens=spec.sampling.max_tokens)]


def _advantage(spec: JobSpec, teacher: str) -> Iterator[str]:
    objective, scale = spec.resolved_objective, spec.reward_scale(teacher)
    if objective.signal == "gopd" and scale != 1.0:
        optimum = f"reference^{1 - scale:g} teacher^{scale:g}"
        yield f"d = (T - S') + {scale - 1:g} (T - R)   [lambda {scale:g}; optimum ~ {optimum}]"
    else:
        yield "d = T - S'"
    if objective.clip_signal is not None:
        yield f"d <- d cut to [-{objective.clip_signal:g}, {objective.clip_signal:g}]"
    right = f"score > {objective.threshold:g}"
    gates = {
        "correctness": f"d <- max(d, 0) where {right}, else min(d, 0)",
        "inverse": f"d <- min(d, 0) where {right}, else max(d, 0)",
        "relative": "d <- sign(A) relu(sign(A) d)",
    }
    if objective.gate in gates:
        yield gates[objective.gate]
    if objective.group_scale == "magnitude":
        yield f"d <- d (|A| + {objective.group_scale_offset:g})"
    outcome = f" + {objective.outcome_weight:g} A" if objective.outcome_weight else ""
    baseline = " - mean over the step" if objective.baseline == "mean" else ""
    yield f"advantage = d{outcome}{baseline}"
    yield f"loss = {_surrogate(objective)}"


def _surrogate(objective: ResolvedObjective) -> str:
    weights = {
        "off": "",
        "token": f"min(exp(S' - B), {objective.importance_cap:g}) * ",
        "sequence": f"min(exp(sum(S' - B)), {objective.importance_cap:g}) * ",
    }
    clips = f"{objective.clip_low:g}/{objective.clip_high:g}, dual {objective.dual_clip:g}"
    return f"{weights[objective.importance]}PPO-clip(exp(S - S'), advantage; {clips})"


def _divergence(objective: ResolvedObjective) -> str:
    shares = {"beta": objective.beta, "rest": 1 - objective.beta, "skew": objective.skew, "kept": 1 - objective.skew}
    scale = f"(|A| + {objective.group_scale_offset:g}) * " if objective.group_scale == "magnitude" else ""
    whose = {"student": "the student's", "teacher": "the teacher's", "union": "the student's and the teacher's"}
    named = f"{whose[objective.candidates]} top {objective.top_k}"
    return f"loss = {scale}{DIVERGENCES[objective.divergence].format(**shares)} over {named}, all other tokens as one"


def _rest(objective: ResolvedObjective) -> Iterator[str]:
    if objective.loss == "divergence" and objective.outcome_weight:
        yield f"loss += {_surrogate(objective)}, advantage = {objective.outcome_weight:g} A"
    if objective.reference_kl != "off":
        yield f"loss += {objective.reference_kl_weight:g} {REFERENCE_KL[objective.reference_kl]}"
    if objective.entropy_weight:
        yield f"loss -= {objective.entropy_weight:g} entropy(student)"
    if objective.needs_group:
        by = " / (std + 1e-6)" if objective.normalization == "std" else ""
        yield f"A = (score - group mean){by}, over the verified samples of a prompt"
    if objective.needs_score:
        yield "samples that could not be verified are masked"


def requests(spec: JobSpec, teacher: str) -> list[str]:
    """What one sample of this teacher asks of the services."""
    objective, reference = spec.resolved_objective, spec.teachers[teacher].reference
    student = f"student: samples at temperature {spec.sampling.temperature:g} with their log-probabilities B"
    if objective.asks_student_top_k:
        student += f", and its top {objective.asks_student_top_k} tokens"
    scores = f"teacher {teacher}: T of every sampled token"
    if objective.asks_student_top_k:
        scores += ", and of the student's top tokens"
    if objective.asks_teacher_top_k:
        scores += f", and its own top {objective.asks_teacher_top_k}"
    lines = [student, scores]
    if spec.asks_reference(teacher):
        base = "the learner, from the model under the adapter: R of every sampled token"
        lines.append(base if reference == "base" else f"teacher {reference}: R of every sampled token")
    wanted = "for the objective and the reports" if objective.needs_score else "for the reports only"
    return [*lines, f"verifier: a score of every sample, {wanted}"]
