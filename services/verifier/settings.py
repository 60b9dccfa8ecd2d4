"""Settings of a verifier."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from potstill.service.settings import ServiceSettings


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class GvisorOptions:
    """How gVisor is started."""

    runsc: str = "runsc"
    platform: str = ""  # empty: its own choice


@dataclass(frozen=True)
class SandboxOptions:
    user_id: int = 65534
    gvisor: GvisorOptions | None = None  # None: programs are processes of this kernel


class VerifierSettings(ServiceSettings):
    verifier_workers: int = Field(
        default_factory=available_cores, gt=0, description="Items judged at once; the default is the number of cores."
    )
    verifier_deadline_seconds: float = Field(
        default=2.0, gt=0, description="A worker that takes longer over one item is killed."
    )
    verifier_memory_bytes: int = Field(
        default=2**30, ge=2**28, description="Address space of one worker; about 64 MiB are its own."
    )
    verifier_max_pending: int = Field(
        default=4096, gt=0, description="Items that may wait; a request beyond that is refused with 503."
    )
    verifier_recycle_after: int = Field(default=1000, gt=0, description="Items after which a worker is replaced.")
    verifier_max_wall_seconds: float = Field(
        default=60.0, gt=0, description="Longest run of one test that may be asked for."
    )
    verifier_max_program_bytes: int = Field(default=2**32, gt=0, description="Most memory that may be asked for.")
    verifier_max_output_bytes: int = Field(default=2**24, gt=0, description="Most output that may be asked for.")
    sandbox_user_id: int = Field(
        default=65534, ge=0, description="The user that programs run as when the verifier is root."
    )
    sandbox_backend: Literal["process", "gvisor"] = Field(
        default="process", description="`gvisor` runs programs on a kernel of their own; not ready where it cannot."
    )
    sandbox_runsc: str = Field(default="runsc", description="The program of gVisor.")
    sandbox_runsc_platform: str = Field(default="", description="Its platform; empty leaves the choice to it.")
    isolation_minimum: str = Field(
        default="", description="Layers, separated by commas, without any of which the verifier is not ready."
    )

    @property
    def required_layers(self) -> tuple[str, ...]:
        named = [name.strip() for name in self.isolation_minimum.split(",") if name.strip()]
        return tuple(dict.fromkeys(named if self.gvisor is None else [*named, "gvisor"]))

    @property
    def gvisor(self) -> GvisorOptions | None:
        if self.sandbox_backend == "process":
            return None
        return GvisorOptions(self.sandbox_runsc, self.sandbox_runsc_platform)
