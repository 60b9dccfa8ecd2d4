"""Settings of a rollout worker."""

from __future__ import annotations

import os
import socket

from pydantic import Field

from potstill.service.registry import TeacherUrls
from potstill.service.settings import ServiceSettings


class RolloutSettings(ServiceSettings):
    student_url: str = Field(description="Base URL of the student service.")
    teachers: TeacherUrls = Field(description="Teacher name to base URL, `name=url,name=url` or JSON.")
    verifier_url: str = Field(description="Base URL of the verifier service.")
    worker_name: str = Field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}",
        description="A name that survives restarts lets a worker go on with the tickets it held.",
    )
    rollout_generate_seconds: float = Field(
        default=600.0, gt=0, description="How long the student may take to answer one ticket before it is asked again."
    )
    rollout_concurrency: int = Field(default=64, gt=0, description="Tickets in progress at once.")
    rollout_lease_seconds: float = Field(default=30.0, gt=0, description="A ticket not renewed so long is taken over.")
    rollout_max_attempts: int = Field(default=4, gt=0, description="Failures after which a ticket is given up.")
