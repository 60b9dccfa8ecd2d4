"""Settings of the gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from potstill.service.registry import TeacherUrls
from potstill.service.settings import ServiceSettings


def _split(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return json.loads(value) if value.lstrip().startswith("[") else [part for part in value.split(",") if part.strip()]


Folders = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_split)]


class GatewaySettings(ServiceSettings):
    student_url: str | None = Field(default=None, description="Base URL of the student service.")
    teachers: TeacherUrls = Field(default={}, description="Teacher name to base URL, `name=url,name=url` or JSON.")
    verifier_url: str | None = Field(default=None, description="Base URL of the verifier service.")
    data_roots: Folders = Field(
        default=(), description="Folders that data files may lie in; unset, the artifacts root and the working folder."
    )
    capability_seconds: float = Field(default=5.0, gt=0, description="How long a service may take to say what it can.")
    count_seconds: float = Field(default=15.0, gt=0, description="Seconds between counts of the jobs in each state.")

    @property
    def allowed_roots(self) -> tuple[Path, ...]:
        """Absolute folders; a relative data path is looked for in each, in this order."""
        return tuple(root.resolve() for root in (self.data_roots or (self.artifacts, Path())))
