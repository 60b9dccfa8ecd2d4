"""The job spec a user writes, and the job record the gateway answers with. Unknown keys are errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from potstill.contracts.state import JobState

Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
TeacherName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)


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


class PlainContext(Strict):
    """The teacher reads the student's prompt, nothing else."""

    kind: Literal["plain"] = "plain"


class Demonstration(Strict):
    prompt: str
    response: str


class DemonstrationsContext(Strict):
    """Worked demonstrations before the prompt and, where the row has one, the solution inside it."""

    kind: Literal["demonstrations"]
    demonstrations: list[Demonstration] = Field(default_factory=list)
    solution: bool = Field(default=True, description="Whether the teacher sees the row's reference solution.")
    solution_template: str = Field(default="{prompt}\n\nReference solution: {solution}")
    max_tokens: Positive = Field(default=4096, description="Longest teacher prompt; a longer one drops the row.")


TeacherContext = Annotated[PlainContext | DemonstrationsContext, Field(discriminator="kind")]


class TeacherSpec(Strict):
    model: str = Field(min_length=1)
    context: TeacherContext = PlainContext()
    temperature: float = Field(default=1.0, gt=0)
    lambda_: float = Field(default=1.0, alias="lambda", description="Reward scale; only 1 until `gopd` is available.")
    reference: str | None = None


class DataSpec(Strict):
    train: str
    heldout: str | None = None
    teacher_column: str = "teacher"
    prompt_column: str = "prompt"
    reference_column: str = "answer"
    solution_column: str = "solution"
    kind: str = Field(default="math", description="Verifier kind of rows that have no `kind` of their own.")


class ObjectiveSpec(Strict):
    """A preset, with any part overridden. See docs/algorithms.md."""

    preset: Literal["opd", "opdvr"] = "opd"
    signal: Literal["opd"] | None = None
    gate: Literal["off", "correctness"] | None = None
    threshold: float = Field(default=0.0, description="A sample is correct when its score is above this.")
    clip_low: float = Field(default=0.2, ge=0)
    clip_high: float = Field(default=0.2, ge=0)
    dual_clip: float = Field(default=3.0, gt=1)
    importance: Literal["off", "token", "sequence"] = "token"
    importance_cap: float = Field(default=5.0, gt=0)
    aggregation: Literal["token_mean"] = "token_mean"


class SamplingSpec(Strict):
    n: Positive = 4
    temperature: float = Field(default=1.0, gt=0)
    max_tokens: Positive = 64


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
    max_tombstone_share: float = Field(
        default=0.25, ge=0, le=1, description="More failed tickets in a step fail the job."
    )
    max_nonfinite_steps: Positive = Field(default=3, description="Skipped steps in a row before the job fails.")


class EvalSpec(Strict):
    every: NonNegative = Field(default=10, description="Steps between evaluations; 0 evaluates only before and after.")
    n: Positive = 1
    temperature: float = Field(default=0.0, ge=0)
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

    @model_validator(mode="after")
    def _only_what_the_objective_uses(self) -> JobSpec:
        for name, teacher in self.teachers.items():
            if teacher.lambda_ != 1.0 or teacher.reference is not None:
                raise ValueError(f"teachers.{name}: lambda and reference need a signal that uses them; `opd` does not")
            if teacher.temperature != self.sampling.temperature:
                raise ValueError(
                    f"teachers.{name}.temperature is {teacher.temperature} but sampling.temperature is "
                    f"{self.sampling.temperature}: the signal compares both at one temperature; make them equal"
                )
        return self


class Progress(BaseModel):
    step: int = 0
    steps: int = 0


class HeldoutResult(BaseModel):
    """Held-out accuracy before and after, on the same problems."""

    n: int
    before: float
    after: float
    gain: float
    interval: tuple[float, float] = Field(description="95% paired bootstrap interval of the gain.")
    before_interval: tuple[float, float]
    after_interval: tuple[float, float]


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
