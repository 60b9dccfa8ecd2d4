"""The decision on a job: everything that speaks against it is found at once, and nothing is stored before."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from potstill.checks.findings import Findings
from potstill.checks.objective import check_objective
from potstill.contracts.job import JobSpec
from services.gateway.asking import ask_services
from services.gateway.capability_checks import check_capabilities, check_verifier
from services.gateway.data_checks import check_data
from services.gateway.findings import raise_if_any
from services.gateway.settings import GatewaySettings


@dataclass(frozen=True)
class Admitted:
    """A job that can run here."""

    spec: JobSpec  # as submitted, with absolute data paths
    train_problems: int
    heldout_problems: int
    warnings: tuple[str, ...]


async def admit(spec: JobSpec, settings: GatewaySettings) -> Admitted:
    """Check data and services. Raises JobRefusedError, ServiceDownError or NotConfiguredError with every finding."""
    (data, in_data), (answers, in_services) = await asyncio.gather(
        check_data(spec, settings.allowed_roots), ask_services(spec, settings)
    )
    findings = Findings()
    findings += in_data
    findings += in_services
    findings += check_capabilities(spec, answers)
    findings += check_objective(spec)
    if data is not None:
        findings += check_verifier(data.kinds, answers.verifier)
    raise_if_any(findings)
    assert data is not None, "a job without usable data has findings"
    return Admitted(
        spec.model_copy(update={"data": data.spec}), len(data.train), len(data.heldout), tuple(findings.warnings)
    )
