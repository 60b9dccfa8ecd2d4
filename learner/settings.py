"""Settings of a learner process."""

from __future__ import annotations

import os
import socket
from typing import Literal

from pydantic import Field

from potstill.service.settings import ServiceSettings


class LearnerSettings(ServiceSettings):
    """Shared settings, and what only a learner has."""

    learner_name: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9._-]{0,100}$",
        description="Stays the same when the process restarts, so that its successor takes its job over at once; "
        "no two running learners share one. Empty: host name and lane.",
    )
    learner_device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="`auto` takes a GPU if there is one."
    )
    learner_threads: int = Field(
        default=0, ge=0, description="CPU threads of torch; 0 leaves torch's choice. Fixed threads give equal bits."
    )
    learner_lease_seconds: float = Field(default=30.0, gt=0, description="A lane silent for so long loses its job.")
    learner_poll_seconds: float = Field(default=1.0, gt=0, description="Pause between looks for a job.")
    learner_stuck_seconds: float = Field(
        default=900.0, gt=0, description="Longest time between two signs of life before /livez fails."
    )
    learner_reissue_seconds: float = Field(
        default=5.0,
        gt=0,
        description="Pause between writing the wanted tickets again, should the queue have lost them.",
    )
    learner_samples_kept: int = Field(default=4, ge=0, description="Samples a step written for people to read.")

    @property
    def owner(self) -> str:
        return self.learner_name or f"{os.environ.get('HOSTNAME') or socket.gethostname()}-{self.lane}"
