"""Waiting out a service that is down, busy or restarting."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from potstill.service.logs import get_logger
from potstill.service.peers import PeerUnavailableError
from services.rollout import metrics

T = TypeVar("T")
FIRST_SECONDS, LONGEST_SECONDS = 0.1, 3.0
log = get_logger("rollout")


async def patiently(service: str, call: Callable[[], Awaitable[T]]) -> T:
    """Repeat `call` until the service answers. The caller keeps its lease meanwhile and cancels when it is over."""
    wait = FIRST_SECONDS
    while True:
        try:
            return await call()
        except PeerUnavailableError as error:
            reason = str(error.status or "connection")
            metrics.retries.labels(service, reason).inc()
            log.debug("waiting for a service", service=service, reason=str(error))
            pause = min(LONGEST_SECONDS, error.retry_after or wait)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            wait = min(LONGEST_SECONDS, wait * 2)
