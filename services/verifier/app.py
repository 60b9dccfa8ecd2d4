"""The verifier's HTTP service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from fastapi import FastAPI, Request, Response

import potstill
from potstill.contracts.capabilities import Capabilities
from potstill.contracts.verification import Limits, VerifyItem, VerifyRequest, VerifyResponse, VerifyResult
from potstill.service.app import create_app
from potstill.service.errors import UnavailableError
from potstill.service.http import message_response, openapi_messages, read_message, until_disconnect
from services.verifier import metrics
from services.verifier.admission import check_items
from services.verifier.kinds import MODULES
from services.verifier.pool import Pool
from services.verifier.process import WorkerOptions
from services.verifier.settings import SandboxOptions, VerifierSettings

PROBE = VerifyItem("livez", "exact", "yes", "yes")


def build(settings: VerifierSettings) -> FastAPI:
    """The app; its lifespan is the pool's."""
    options = WorkerOptions(
        deadline_seconds=settings.verifier_deadline_seconds,
        memory_bytes=settings.verifier_memory_bytes,
        recycle_after=settings.verifier_recycle_after,
        sandbox=SandboxOptions(settings.sandbox_user_id, settings.gvisor),
    )
    pool = Pool(settings.verifier_workers, settings.verifier_max_pending, options, settings.required_layers)
    largest = Limits(
        wall_seconds=settings.verifier_max_wall_seconds,
        cpu_seconds=settings.verifier_max_wall_seconds,
        memory_bytes=settings.verifier_max_program_bytes,
        output_bytes=settings.verifier_max_output_bytes,
    )

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with pool:
            yield

    async def live() -> None:
        judgement = await pool.ask(PROBE)
        if judgement.score != 1.0:
            raise UnavailableError(f"a worker answered a probe with {judgement.verdict}: {judgement.detail}")

    async def ready() -> None:
        pool.check_ready()

    def capabilities() -> Capabilities:
        return Capabilities(
            service="verifier",
            version=potstill.__version__,
            features=tuple(sorted(set(MODULES) - set(pool.unavailable))),
            isolation=pool.isolation,
            limits={
                "max_items": settings.verifier_max_pending,
                "workers": settings.verifier_workers,
                "deadline_seconds": settings.verifier_deadline_seconds,
                "memory_bytes": settings.verifier_memory_bytes,
                **{f"program_{name}": value for name, value in msgspec.structs.asdict(largest).items()},
            },
        )

    app = create_app("verifier", settings, capabilities=capabilities, live=live, ready=ready, lifespan=lifespan)

    @app.post("/v1/verify", tags=["verification"], openapi_extra=openapi_messages(VerifyRequest, VerifyResponse))
    async def verify(request: Request, explain: bool = False) -> Response:
        """Judge responses. Results come in the order of the items; `explain` adds what led to each verdict."""
        message = await read_message(request, VerifyRequest)
        check_items(message.items, pool.unavailable, largest)
        judgements = await until_disconnect(request, pool.judge(message.items))
        results = tuple(
            VerifyResult(item.id, judgement.verdict, judgement.score, judgement.shown(explain))
            for item, judgement in zip(message.items, judgements, strict=True)
        )
        for item, result in zip(message.items, results, strict=True):
            metrics.verdicts.labels(item.kind, result.verdict).inc()
        return message_response(request, VerifyResponse(results, pool.isolation))

    return app
