"""Running an app: in the foreground for services, in a thread beside a learner's loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, TypeVar

import uvicorn
from fastapi import FastAPI

from potstill.service.logs import configure_logging
from potstill.service.settings import ServiceSettings, SettingsError, load_settings

S = TypeVar("S", bound=ServiceSettings)


def fail(message: str) -> NoReturn:
    """End the process with one line on standard error."""
    sys.stderr.write(f"potstill: {message}\n")
    raise SystemExit(2)


def settings_or_exit(kind: type[S]) -> S:
    """Settings with logging configured, or one line and exit code 2."""
    try:
        settings = load_settings(kind)
    except SettingsError as error:
        fail(str(error))
    configure_logging(settings.log_level, settings.log_format)
    return settings


class _Server(uvicorn.Server):
    """Says that it is going before it waits for what is open, so that endless streams can end themselves."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        assert isinstance(self.config.app, FastAPI)
        self.config.app.state.draining = True
        super().handle_exit(sig, frame)


def _server(app: FastAPI, settings: ServiceSettings) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=settings.drain_seconds,
        timeout_keep_alive=75,
    )
    return _Server(config)


def serve(app: FastAPI, settings: ServiceSettings) -> None:
    """Serve until SIGTERM or SIGINT, then drain."""
    _server(app, settings).run()


def run_service(kind: type[S], build: Callable[[S], FastAPI]) -> None:
    """The whole `main` of a service process."""
    settings = settings_or_exit(kind)
    serve(build(settings), settings)


def serve_in_thread(app: FastAPI, settings: ServiceSettings) -> uvicorn.Server:
    """Serve probes and metrics beside a blocking loop; set `should_exit` on the result to stop."""
    server = _server(app, settings)
    threading.Thread(target=lambda: asyncio.run(server.serve()), name="probes", daemon=True).start()
    return server
