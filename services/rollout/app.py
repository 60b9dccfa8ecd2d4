"""The worker as a process with probes and metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from potstill.broker import Broker
from potstill.service.app import create_app
from potstill.service.background import in_background
from potstill.service.errors import UnavailableError
from potstill.service.peers import Peer, PeerError
from services.rollout.rollout import Peers
from services.rollout.settings import RolloutSettings
from services.rollout.worker import Worker


def build(settings: RolloutSettings) -> FastAPI:
    """The app; its lifespan is the worker's."""
    broker = Broker.connect(settings.redis_url, patient=True)
    probe = Broker.connect(settings.redis_url, patient=False)
    peers = Peers(
        student=Peer(settings.student_url, settings.bearer, settings.rollout_generate_seconds),
        teachers={name: Peer(url, settings.bearer) for name, url in settings.teachers.items()},
        verifier=Peer(settings.verifier_url, settings.bearer),
    )
    worker = Worker(settings, broker, peers)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        task = in_background(worker.run(), "tickets", "rollout")
        yield
        worker.stopping.set()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        for peer in (peers.student, *peers.teachers.values(), peers.verifier):
            await peer.close()
        await broker.close()
        await probe.close()

    async def ready() -> None:
        await worker.check()
        try:
            await probe.ping()
            for peer in (peers.student, *peers.teachers.values(), peers.verifier):
                await peer.ready()
        except PeerError as error:
            raise UnavailableError(str(error)) from error

    return create_app("rollout", settings, live=worker.check, ready=ready, lifespan=lifespan)
