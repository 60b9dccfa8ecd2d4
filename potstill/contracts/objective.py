"""The objective of a job: a preset, any part of it overridden, and what they come to. Formulas: docs/algorithms.md."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Preset = Literal["opd", "exopd", "opdvr", "grpd", "opsd", "topk-opd", "opd+grpo"]
Signal = Literal["opd", "gopd"]
Gate = Literal["off", "correctness", "inverse", "relative"]
GroupScale = Literal["off", "magnitude"]
Normalization = Literal["std", "mean"]
Loss = Literal["policy_gradient", "divergence"]
Divergence = Literal["reverse_kl", "forward_kl", "jsd", "skew_forward_kl", "skew_reverse_kl"]
Candidates = Literal["student", "teacher", "union"]
ReferenceKl = Literal["off", "k1", "k2", "k3"]
Importance = Literal["off", "token", "sequence"]
Aggregation = Literal["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum"]

Fraction = Annotated[float, Field(gt=0, lt=1)]

EXTRAPOLATION = 1.25  # the published λ of ExOPD
UNSTABLE = 1.4  # above it; 1.5 was unstable where it was published


class ObjectiveSpec(BaseModel):
    """What a user writes. A part left out is the preset's."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    preset: Preset = "opd"
    signal: Signal | None = Field(default=None, description="What the teacher's opinion of a token is.")
    gate: Gate | None = Field(default=None, description="Which part of the signal the verifier lets through.")
    threshold: float = Field(default=0.0, description="A sample is correct when its score is above this.")
    group_scale: GroupScale | None = Field(default=None, description="`magnitude` multiplies the signal by |A| + u.")
    group_scale_offset: float = Field(default=0.0, ge=0, description="u: what groups all right or all wrong keep.")
    normalization: Normalization = Field(
        default="std", description="Group advantage A: (c - mean) / std, or c - mean alone (Dr. GRPO)."
    )
    outcome_weight: float | None = Field(default=None, ge=0, description="w: adds w · A to every token.")
    clip_signal: float | None = Field(default=None, gt=0, description="Bound on |d|; none by default.")
    baseline: Literal["off", "mean"] = Field(default="off", description="`mean` subtracts the step's mean advantage.")

    loss: Loss | None = None
    clip_low: float = Field(default=0.2, ge=0)
    clip_high: float = Field(default=0.2, ge=0)
    dual_clip: float = Field(default=3.0, gt=1)
    divergence: Divergence = Field(default="reverse_kl", description="For `loss: divergence`.")
    beta: Fraction = Field(default=0.5, description="β of the generalised JSD.")
    skew: Fraction = Field(default=0.1, description="α of the skew divergences: the share of the other distribution.")
    candidates: Candidates = Field(default="student", description="Whose top-k tokens a divergence compares.")
    top_k: int = Field(default=16, gt=0, description="Candidates a position, of each side that names them.")

    importance: Importance = "token"
    importance_cap: float = Field(default=5.0, gt=0)
    reference_kl: ReferenceKl = Field(default="off", description="Estimator of the KL to the reference.")
    reference_kl_weight: float = Field(default=0.01, ge=0)
    entropy_weight: float = Field(default=0.0, ge=0, description="Weight of the entropy bonus.")
    aggregation: Aggregation = "token_mean"


class ResolvedObjective(BaseModel):
    """What the job trains, with nothing left open. `resolve` makes it."""

    model_config = ConfigDict(frozen=True)

    signal: Signal
    gate: Gate
    threshold: float
    group_scale: GroupScale
    group_scale_offset: float
    normalization: Normalization
    outcome_weight: float
    clip_signal: float | None
    baseline: Literal["off", "mean"]
    loss: Loss
    clip_low: float
    clip_high: float
    dual_clip: float
    divergence: Divergence
    beta: float
    skew: float
    candidates: Candidates
    top_k: int
    importance: Importance
    importance_cap: float
    reference_kl: ReferenceKl
    reference_kl_weight: float
    entropy_weight: float
    aggregation: Aggregation

    @property
    def needs_group(self) -> bool:
        """Whether a sample's value depends on the other samples of its prompt."""
        return self.gate == "relative" or self.group_scale != "off" or self.outcome_weight > 0

    @property
    def needs_score(self) -> bool:
        """Whether samples that could not be verified are masked."""
        return self.gate != "off" or self.needs_group

    @property
    def asks_student_top_k(self) -> int:
        return self.top_k if self.loss == "divergence" and self.candidates in ("student", "union") else 0

    @property
    def asks_teacher_top_k(self) -> int:
        return self.top_k if self.loss == "divergence" and self.candidates in ("teacher", "union") else 0


PARTS: dict[str, str | float] = {
    "signal": "opd",
    "gate": "off",
    "group_scale": "off",
    "outcome_weight": 0.0,
    "loss": "policy_gradient",
}
PRESETS: dict[str, dict[str, str | float]] = {
    "opd": {},
    "exopd": {"signal": "gopd"},
    "opdvr": {"gate": "correctness"},
    "grpd": {"gate": "correctness", "group_scale": "magnitude"},
    "opsd": {},
    "topk-opd": {"loss": "divergence"},
    "opd+grpo": {"outcome_weight": 1.0},
}


def resolve(spec: ObjectiveSpec) -> ResolvedObjective:
    """The preset's parts, under those that the spec names."""
    named = spec.model_dump(exclude={"preset"}, exclude_none=True)
    return ResolvedObjective(**{"clip_signal": None, **PARTS, **PRESETS[spec.preset], **named})
