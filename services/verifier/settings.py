"""Settings of a verifier."""

from __future__ import annotations

import os

from pydantic import Field

from potstill.service.settings import ServiceSettings


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
