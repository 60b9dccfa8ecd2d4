"""The app factory: what every HTTP process shares before it adds its own routes."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import potstill
from potstill.contracts.capabilities import Capabilities
from potstill.service import metrics
from potstill.service.errors import (
    PROBLEM_JSON,
    DeadlineError,
    FieldError,
    MalformedRequestError,
    NotFoundError,
    ServiceError,
    TooLargeError,
    UnauthorizedError,
    UnprocessableError,
)
from potstill.service.http import message_response, message_schemas
from potstill.service.logs import get_logger
from potstill.service.settings import ServiceSettings

OPEN_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
LIVENESS_SECONDS = 20.0
log = get_logger("service")

Check = Callable[[], Awaitable[None]]


async def always() -> None:
    """A check that holds whenever the process can answer at all."""


def create_app(
    name: str,
    settings: ServiceSettings,
    *,
    capabilities: Callable[[], Capabilities] | None = None,
    live: Check = always,
    ready: Check = always,
    lifespan: Callable[[], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """Build the app of one process.

    `live` and `ready` raise a ServiceError when they do not hold; `live` must ask the engine itself, and is timed.
    `lifespan` starts and stops what the service owns.
    """

    @asynccontextmanager
    async def run(_app: FastAPI) -> AsyncIterator[None]:
        metrics.build_info.labels(name, potstill.__version__).set(1)
        if settings.auth == "off":
            log.warning("authentication is off: any process on this machine can use the service", service=name)
        if lifespan is None:
            yield
            return
        async with lifespan():
            yield

    app = FastAPI(title=f"potstill {name}", version=potstill.__version__, lifespan=run)
    app.add_middleware(_Gate, name=name, settings=settings)
    _add_error_handlers(app)
    _add_probes(app, name, capabilities, live, ready)
    _document_messages(app)
    return app


def _document_messages(app: FastAPI) -> None:
    generate = app.openapi

    def with_messages() -> dict[str, Any]:
        document = generate()
        document.setdefault("components", {}).setdefault("schemas", {}).update(message_schemas())
        return document

    app.openapi = with_messages  # type: ignore[method-assign]


def _add_probes(
    app: FastAPI, name: str, capabilities: Callable[[], Capabilities] | None, live: Check, ready: Check
) -> None:
    @app.get("/livez", tags=["probes"])
    async def livez() -> dict[str, str]:
        """Whether this process and its engine answer."""
        try:
            async with asyncio.timeout(LIVENESS_SECONDS):
                await live()
        except TimeoutError as error:
            raise DeadlineError(f"the engine did not answer within {LIVENESS_SECONDS:.0f} s") from error
        return {"status": "live"}

    @app.get("/readyz", tags=["probes"])
    async def readyz() -> dict[str, str]:
        """Whether this process can do its work now."""
        await ready()
        return {"status": "ready"}

    @app.get("/metrics", tags=["probes"])
    async def prometheus() -> Response:
        """Prometheus metrics."""
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/capabilities", tags=["probes"])
    async def get_capabilities(request: Request) -> Response:
        """What this process can do."""
        known = capabilities() if capabilities else Capabilities(service=name, version=potstill.__version__)
        return message_response(request, known)


def _add_error_handlers(app: FastAPI) -> None:
    async def on_service_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)
        return problem_response(error, request.url.path, _request_id(request.scope))

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind = NotFoundError if error.status_code == NotFoundError.status else MalformedRequestError
        converted = kind(f"{request.method} {request.url.path}: {error.detail}")
        return problem_response(converted, request.url.path, _request_id(request.scope), status=error.status_code)

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        fields = tuple(FieldError(field_path(item["loc"]), item["msg"]) for item in error.errors())
        detail = "; ".join(f"{item.field}: {item.message}" for item in fields)
        return problem_response(
            UnprocessableError(detail, code="invalid_request", errors=fields),
            request.url.path,
            _request_id(request.scope),
        )

    async def on_unexpected(request: Request, error: Exception) -> Response:
        log.error("unexpected error", path=request.url.path, request_id=_request_id(request.scope), exc_info=error)
        failure = ServiceError("the service failed on this request; its log has the cause under the request id")
        return problem_response(failure, request.url.path, _request_id(request.scope))

    app.add_exception_handler(ServiceError, on_service_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(Exception, on_unexpected)


def field_path(location: tuple[Any, ...] | list[Any]) -> str:
    """`("body", "sampling", "n")` as `sampling.n`."""
    parts = [str(part) for part in location]
    return ".".join(parts[1:] if parts and parts[0] in ("body", "query", "path") else parts) or "body"


def problem_response(error: ServiceError, instance: str, request_id: str, status: int | None = None) -> Response:
    headers = {"x-request-id": request_id}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after)))
    if isinstance(error, UnauthorizedError):
        headers["www-authenticate"] = "Bearer"
    problem = error.problem(instance, request_id)
    if status is not None:
        problem = msgspec.structs.replace(problem, status=status)
    return Response(msgspec.json.encode(problem), status or error.status, headers, PROBLEM_JSON)


def _request_id(scope: Scope) -> str:
    return str(scope.get("state", {}).get("request_id", ""))


class _Gate:
    """Request id, authentication, size limit, deadline and request metrics, in front of every route."""

    def __init__(self, app: ASGIApp, name: str, settings: ServiceSettings) -> None:
        self.app = app
        self.name = name
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        request_id = headers.get("x-request-id", "")[:128] or secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        begun, status, streaming = time.perf_counter(), 500, False

        async def send_and_note(message: Message) -> None:
            nonlocal status, streaming
            if message["type"] == "http.response.start":
                status = message["status"]
                kept = [(k, v) for k, v in message.get("headers", []) if k != b"x-request-id"]
                message["headers"] = [*kept, (b"x-request-id", request_id.encode("latin-1"))]
                streaming = any(
                    k == b"content-type" and v.startswith(b"text/event-stream") for k, v in message["headers"]
                )
                if streaming:
                    deadline.reschedule(None)
            await send(message)

        metrics.http_in_flight.labels(self.name).inc()
        try:
            self._authorize(scope["path"], headers)
            self._check_length(headers)
            async with asyncio.timeout(self.settings.request_seconds) as deadline:
                await self.app(scope, self._bounded(receive), send_and_note)
        except ServiceError as error:
            status = error.status
            await problem_response(error, scope["path"], request_id)(scope, receive, send)
        except TimeoutError:
            late = DeadlineError(f"no answer within {self.settings.request_seconds:.0f} s")
            status = late.status
            await problem_response(late, scope["path"], request_id)(scope, receive, send)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            metrics.http_in_flight.labels(self.name).dec()
            metrics.http_requests.labels(self.name, route, scope["method"], str(status)).inc()
            metrics.http_request_seconds.labels(self.name, route).observe(time.perf_counter() - begun)

    def _authorize(self, path: str, headers: dict[str, str]) -> None:
        expected = self.settings.bearer
        if expected is None or path in OPEN_PATHS:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secrets.compare_digest(given.encode(), expected.encode()):
            raise UnauthorizedError("send `Authorization: Bearer <token>` with the token in POTSTILL_TOKEN")

    def _check_length(self, headers: dict[str, str]) -> None:
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self.settings.max_body_bytes:
            raise self._too_large()

    def _too_large(self) -> TooLargeError:
        return TooLargeError(f"a body may have {self.settings.max_body_bytes} bytes (POTSTILL_MAX_BODY_BYTES)")

    def _bounded(self, receive: Receive) -> Receive:
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.settings.max_body_bytes:
                raise self._too_large()
            return message

        return bounded
