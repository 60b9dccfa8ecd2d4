"""The job spec a user writes, and the job record the gateway answers with. Unknown keys are errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from potstill.contracts.context import PlainContext, TeacherContext
from potstill.contracts.objective import EXTRAPOLATION, ObjectiveSpec, ResolvedObjective, resolve
from potstill.contracts.state import JobState
from potstill.contracts.strict import NonNegative, Positive, Strict

TeacherName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


class LoraSpec(Strict):
    """Low-rank adapters (peft) in place of full weights."""

    rank: Positive = 16
    alpha: Positive = 32
    target_modules: list[str] | Literal["all-linear"] = "all-linear"


class StudentSpec(Strict):
    model: str = Field(min_length=1, description="A folder in Hugging Face format, or a hub id.")
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="What the learner computes in; master weights are always float32."
    )
    lora: LoraSpec | None = None


class TeacherSpec(Strict):
    model: str = Field(min_length=1)
    context: TeacherContext = PlainContext()
    temperature: float = Field(default=1.0, gt=0)
    lambda_: float | None = Field(
        default=None, ge=0, alias="lambda", description="Reward scale of `gopd`; left out it is 1.25 for it, else 1."
    )
    reference: str | None = Field(
        default=None, description="Whose values R are: another name in `teachers`, or `base`, the model under the LoRA."
    )


class DataSpec(Strict):
    train: str
    heldout: str | None = None
    teacher_column: str = "teacher"
    prompt_column: str = "prompt"
    reference_column: str = "answer"
    solution_column: str = "solution"
    kind: str = Field(default="math", description="Verifier kind of rows that have no `kind` of their own.")


class SamplingSpec(Strict):
    n: Positive = 4
    temperature: float = Field(default=1.0, gt=0)
    max_tokens: Positive = 64
    max_prompt_tokens: Positive | None = Field(
        default=None,
        description="Longest prompt of the student; a longer one drops the row. Left out, the student's length binds.",
    )
    stop_token_ids: list[NonNegative] = Field(
        default_factory=list, description="Ids that end a sample; left out, those the student's model names."
    )


class TrainingSpec(Strict):
    steps: Positive = 50
    prompts_per_step: Positive = 16
    lr: float = Field(default=1e-6, gt=0)
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    warmup_steps: NonNegative = 0
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = Field(default=0.0, ge=0)
    clip_norm: float = Field(default=1.0, gt=0)
    max_staleness: NonNegative = 1
    checkpoint_every: Positive = 10
    keep_checkpoints: Positive = 2
    micro_batch_tokens: Positive = Field(default=8192, description="Padded tokens in one forward and backward.")
    gradient_checkpointing: bool = False
    packing: bool = Field(
        default=False,
        description="Samples go through the student in one row without padding, each prompt once; made for GPUs.",
    )
    max_tombstone_share: float = Field(
        default=0.25, ge=0, le=1, description="More failed tickets in a step fail the job."
    )
    max_nonfinite_steps: Positive = Field(default=3, description="Skipped steps in a row before the job fails.")


class EvalSpec(Strict):
    every: NonNegative = Field(default=10, description="Steps between evaluations; 0 evaluates only before and after.")
    n: Positive = Field(default=1, description="Samples a problem; with several, pass@n and maj@n are told as well.")
    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1, description="Nucleus of the samples; training never has one.")
    max_tokens: Positive | None = Field(default=None, description="Unset, that of `sampling`.")
    max_problems: Positive | None = None


class JobSpec(Strict):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    seed: NonNegative = 0
    student: StudentSpec
    teachers: dict[TeacherName, TeacherSpec] = Field(min_length=1)
    data: DataSpec
    objective: ObjectiveSpec = ObjectiveSpec()
    sampling: SamplingSpec = SamplingSpec()
    training: TrainingSpec = TrainingSpec()
    eval: EvalSpec = EvalSpec()
    tracking: list[Literal["tensorboard", "wandb"]] = Field(default_factory=list)

    @property
    def resolved_objective(self) -> ResolvedObjective:
        return resolve(self.objective)

    def reward_scale(self, teacher: str) -> float:
        """λ of one teacher."""
        stated = self.teachers[teacher].lambda_
        if stated is not None:
            return stated
        return EXTRAPOLATION if self.resolved_objective.signal == "gopd" else 1.0

    def asks_reference(self, teacher: str) -> bool:
        """Whether samples of this teacher need R. At λ = 1 `gopd` is `opd` and does not."""
        objective = self.resolved_objective
        scaled = objective.signal == "gopd" and self.reward_scale(teacher) != 1.0
        return scaled or objective.reference_kl != "off"

    def reference_of(self, teacher: str) -> str | None:
        """The teacher to ask for R; None where none is needed, or where the learner has it (`base`)."""
        named = self.teachers[teacher].reference
        return named if named != "base" and self.asks_reference(teacher) else None

    @property
    def scoring_teachers(self) -> tuple[str, ...]:
        """Those that are no reference of another; all, where that leaves none."""
        references = {teacher.reference for teacher in self.teachers.values()}
        return tuple(name for name in self.teachers if name not in references) or tuple(self.teachers)

    @property
    def default_teacher(self) -> str | None:
        """The teacher of rows that name none, where only one can be meant."""
        return self.scoring_teachers[0] if len(self.scoring_teachers) == 1 else None

    @model_validator(mode="after")
    def _teachers_fit_the_objective(self) -> JobSpec:
        objective = self.resolved_objective
        self._check_divergence(objective)
        for name, teacher in self.teachers.items():
            where = f"teachers.{name}"
            if teacher.lambda_ not in (None, 1.0) and objective.signal != "gopd":
                raise ValueError(f"{where}.lambda is {teacher.lambda_}, which only the signal `gopd` uses")
            if teacher.temperature != self.sampling.temperature:
                raise ValueError(
                    f"{where}.temperature is {teacher.temperature} but sampling.temperature is "
                    f"{self.sampling.temperature}: the signal compares both at one temperature; make them equal"
                )
            self._check_reference(name, teacher)
        return self

    def _check_divergence(self, objective: ResolvedObjective) -> None:
        """A divergence has no signal of single tokens, so nothing that shapes one may be asked for in vain."""
        if objective.loss != "divergence":
            return
        shaping = {
            "signal": objective.signal != "opd",
            "gate": objective.gate != "off",
            "clip_signal": objective.clip_signal is not None,
            "baseline": objective.baseline != "off" and objective.outcome_weight == 0,
        }
        if named := [name for name, is_set in shaping.items() if is_set]:
            raise ValueError(
                f"objective: a divergence compares distributions and has no signal to shape: leave out "
                f"{', '.join(named)}, or use `loss: policy_gradient`"
            )

    def _check_reference(self, name: str, teacher: TeacherSpec) -> None:
        where, reference = f"teachers.{name}.reference", teacher.reference
        if reference is None:
            is_only_a_reference = any(other.reference == name for other in self.teachers.values())
            if self.asks_reference(name) and not is_only_a_reference:
                raise ValueError(f"{where} is needed by the objective: name another teacher, or `base` with a LoRA")
        elif reference == "base":
            if self.student.lora is None:
                raise ValueError(f"{where}: `base` is the model under a LoRA, and this job trains full weights")
        elif reference not in self.teachers or reference == name:
            known = ", ".join(sorted(set(self.teachers) - {name})) or "none"
            raise ValueError(f"{where} is {reference!r}: name another teacher (there are: {known}), or `base`")


class Progress(BaseModel):
    step: int = 0
    steps: int = 0


class Change(BaseModel):
    """A measure before and after, on the same problems."""

    n: int = Field(description="Problems that have a value both times.")
    before: float
    after: float
    gain: float
    interval: tuple[float, float] = Field(description="95% paired bootstrap interval of the gain.")
    before_interval: tuple[float, float]
    after_interval: tuple[float, float]


class HeldoutResult(Change):
    """Held-out accuracy before and after: the mean over problems of their share of correct samples, avg@n."""

    samples: int = Field(default=1, description="Samples a problem, n of avg@n, pass@n and maj@n.")
    pass_at_n: Change | None = Field(default=None, description="Absent with one sample a problem.")
    maj_at_n: Change | None = Field(default=None, description="Absent too where the verifier takes no answers.")
    data_sets: dict[str, Change] = Field(default_factory=dict, description="Accuracy by data_source, if several.")


class Job(BaseModel):
    """A job as the gateway answers it."""

    id: str
    object: Literal["distillation.job"] = "distillation.job"
    status: JobState
    created_at: int
    started_at: int | None = None
    finished_at: int | None = None
    spec: JobSpec
    error: dict[str, Any] | None = None
    progress: Progress
    heldout: HeldoutResult | None = None
    checkpoint: str | None = None


class JobList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Job]
    has_more: bool


class Event(BaseModel):
    id: str
    created_at: float
    level: Literal["info", "warning", "error"] = "info"
    type: Literal["message", "metrics", "status"] = "message"
    message: str
    data: dict[str, Any] = Field(default_factory=dict)


class EventList(BaseModel):
    data: list[Event]
    has_more: bool


class Checkpoint(BaseModel):
    step: int
    path: str
    created_at: float
    final: bool = False


class CheckpointList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Checkpoint]


class StepMetrics(BaseModel):
    """The numbers of one step. A step that was replayed after a crash occurs again; the later one counts."""

    id: str
    step: int
    values: dict[str, Any]


class MetricsList(BaseModel):
    object: Literal["list"] = "list"
    data: list[StepMetrics]
    has_more: bool


class TrajectoryList(BaseModel):
    """A few samples of one step, to read."""

    object: Literal["list"] = "list"
    step: int | None = Field(description="The step asked for, or the newest; null while there is none.")
    steps: list[int] = Field(description="Steps that have samples.")
    data: list[dict[str, Any]]


class Validation(BaseModel):
    """What a job spec was found to be. A spec that cannot run is refused with the same errors as at submission."""

    valid: Literal[True] = True
    train_problems: int
    heldout_problems: int
    warnings: list[str]
