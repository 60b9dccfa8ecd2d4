"""The gateway's HTTP service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError

from potstill.broker import Broker, BrokerUnavailableError
from potstill.broker.connection import RETRYABLE
from potstill.broker.jobs import JobStore
from potstill.service.app import create_app, problem_response
from services.gateway.endpoints import router
from services.gateway.errors import QueueDownError
from services.gateway.invalid_spec import on_invalid_request
from services.gateway.queue_watch import watch_until
from services.gateway.service import JobService
from services.gateway.settings import GatewaySettings

RETRY_SECONDS = 2.0


def build(settings: GatewaySettings) -> FastAPI:
    """The app of this process."""
    broker = Broker.connect(settings.redis_url, patient=False)
    jobs = JobService(JobStore(broker), settings)

    async def ready() -> None:
        try:
            await broker.ping()
        except BrokerUnavailableError as error:
            raise _queue_down(error) from error

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        stopping = asyncio.Event()
        counting = asyncio.create_task(watch_until(stopping, broker, settings.count_seconds))
        yield
        stopping.set()  # not a cancellation: the Redis client may swallow one
        await counting
        await broker.close()

    app = create_app("gateway", settings, ready=ready, lifespan=lifespan)
    app.state.jobs = jobs
    app.include_router(router)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    for kind in RETRYABLE:
        if kind is not OSError:  # that may be about any file, and is no news of Redis
            app.add_exception_handler(kind, _on_queue_down)
    return app


async def _on_queue_down(request: Request, error: Exception) -> Response:
    return problem_response(_queue_down(error), request.url.path, str(request.scope["state"]["request_id"]))


def _queue_down(error: Exception) -> QueueDownError:
    return QueueDownError(f"Redis does not answer ({error}); nothing was changed, try again", retry_after=RETRY_SECONDS)
