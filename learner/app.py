"""Probes and metrics beside the loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from learner.control import Heartbeat
from learner.settings import LearnerSettings
from potstill.broker import Broker, BrokerUnavailableError
from potstill.service.app import create_app
from potstill.service.errors import UnavailableError


def build(settings: LearnerSettings, heartbeat: Heartbeat) -> FastAPI:
    """An app that is live while the loop goes round, and ready while the queue server answers."""
    probe = Broker.connect(settings.redis_url, patient=False)

    async def live() -> None:
        if heartbeat.age_seconds > settings.learner_stuck_seconds:
            raise UnavailableError(f"the training loop has not gone round for {heartbeat.age_seconds:.0f} s")

    async def ready() -> None:
        try:
            await probe.ping()
        except BrokerUnavailableError as error:
            raise UnavailableError(str(error)) from error

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        await probe.close()

    return create_app("learner", settings, live=live, ready=ready, lifespan=lifespan)
