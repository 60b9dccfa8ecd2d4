"""What a teacher reads before it scores a response, as a job says it. Builders: services/rollout/contexts."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from potstill.contracts.prompt_template import PromptTemplate
from potstill.contracts.strict import Positive, Strict

# What a Jinja template may read of a row; those that a row lacks are undefined.
TEMPLATE_VARIABLES = ("prompt", "messages", "response", "solution", "reference", "id", "data_source", "kind")

SOLUTION_PROMPT = (
    "{prompt}\n\nHere is a reference solution to this problem:\n{solution}\n\n"
    "Now that you have understood it, solve the problem in your own words."
)
CRITIQUE_REQUEST = (
    "Problem:\n{prompt}\n\nAn answer to it:\n{response}\n\n"
    "Say in a few sentences what is right and what is wrong in this answer, and how to do better. "
    "Do not write out a full answer of your own."
)
CRITIQUE_PROMPT = "{prompt}\n\nA critique of an earlier answer to this:\n{critique}"


class ContextSpec(Strict):
    """What every context has."""

    max_tokens: Positive | None = Field(
        default=None,
        description="Longest teacher prompt; a longer one drops the row. Left out, the teacher's own length binds.",
    )

    @property
    def needs_solution(self) -> bool:
        """Whether a row without a reference solution has no such context."""
        return False


class PlainContext(ContextSpec):
    """The teacher reads the student's prompt, nothing else."""

    kind: Literal["plain"] = "plain"


class Demonstration(Strict):
    prompt: str
    response: str


class DemonstrationsContext(ContextSpec):
    """Worked demonstrations before the prompt and, where asked for, the row's solution inside it."""

    kind: Literal["demonstrations"]
    demonstrations: list[Demonstration] = Field(default_factory=list)
    solution: bool = Field(default=True, description="Whether the teacher sees the row's reference solution.")
    solution_template: str = Field(default="{prompt}\n\nReference solution: {solution}")

    @property
    def needs_solution(self) -> bool:
        return self.solution

    @model_validator(mode="after")
    def _shows_both(self) -> Self:
        if self.solution:
            _require(self.solution_template, "prompt", "solution")
        return self


class SolutionContext(ContextSpec):
    """The row's reference solution inside the prompt: self-distillation with privileged information."""

    kind: Literal["solution"]
    template: str = Field(default=SOLUTION_PROMPT, description="With {prompt} and {solution}.")

    @property
    def needs_solution(self) -> bool:
        return True

    @field_validator("template")
    @classmethod
    def _shows_both(cls, value: str) -> str:
        return _require(value, "prompt", "solution")


class TemplateContext(ContextSpec):
    """A Jinja template makes the teacher's last message. It is sandboxed, and a name that is not there is an error."""

    kind: Literal["template"]
    template: str = Field(min_length=1, max_length=65536, description=f"Reads {', '.join(TEMPLATE_VARIABLES)}.")

    @property
    def compiled(self) -> PromptTemplate:
        return PromptTemplate(self.template, TEMPLATE_VARIABLES)

    @property
    def needs_solution(self) -> bool:
        return self.compiled.requires("solution")

    @field_validator("template")
    @classmethod
    def _is_a_template(cls, value: str) -> str:
        PromptTemplate(value, TEMPLATE_VARIABLES)
        return value


class CritiqueContext(ContextSpec):
    """A critique from an OpenAI-compatible server, in the prompt. Where none can be had the row is dropped."""

    kind: Literal["critique"]
    model: str = Field(min_length=1, description="As the server calls it.")
    base_url: str = Field(pattern=r"^https?://\S+$", description="Up to and with /v1.")
    api_key_env: str | None = Field(
        default=None,
        # So that a job cannot have a worker send out whatever else stands in its environment.
        pattern=r"^[A-Z][A-Z0-9_]*_API_KEY$",
        description="The variable of the rollout worker that holds the key; its name ends with _API_KEY.",
    )
    request: str = Field(
        default=CRITIQUE_REQUEST,
        description="What the server is asked, with {prompt}, and perhaps {response}, {solution} and {reference}. "
        "Without {response} a prompt has one critique for all its samples.",
    )
    template: str = Field(default=CRITIQUE_PROMPT, description="What the teacher reads, with {prompt} and {critique}.")
    temperature: float = Field(default=0.0, ge=0)
    critique_tokens: Positive = Field(default=512, description="Longest critique, in tokens of that server.")
    concurrency: Positive = Field(default=8, description="Requests of one worker at the same time.")
    timeout_seconds: float = Field(default=60.0, gt=0, description="Of one request.")
    attempts: Positive = Field(default=3, description="Requests for one critique before its row is dropped.")

    @property
    def needs_solution(self) -> bool:
        return "{solution}" in self.request or "{solution}" in self.template

    @property
    def reads_response(self) -> bool:
        return "{response}" in self.request

    @model_validator(mode="after")
    def _shows_what_it_is_for(self) -> Self:
        _require(self.request, "prompt")
        _require(self.template, "prompt", "critique")
        return self


TeacherContext = Annotated[
    PlainContext | DemonstrationsContext | SolutionContext | TemplateContext | CritiqueContext,
    Field(discriminator="kind"),
]


def _require(template: str, *names: str) -> str:
    missing = [f"{{{name}}}" for name in names if f"{{{name}}}" not in template]
    if missing:
        raise ValueError(f"lacks {' and '.join(missing)}: without it the teacher would not see what the context is for")
    return template
