"""Typed clients of the internal services. One HTTP client, one set of errors."""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any, TypeVar

import httpx
import msgspec

from potstill.contracts import wire
from potstill.contracts.capabilities import Capabilities
from potstill.contracts.generation import GenerateRequest, GenerateResponse
from potstill.contracts.scoring import ScoreRequest, ScoreResponse
from potstill.contracts.verification import VerifyRequest, VerifyResponse

T = TypeVar("T")

RETRYABLE = frozenset({429, 502, 503, 504})
CONNECT_SECONDS = 5.0


class PeerError(Exception):
    """A service could not do what it was asked."""

    def __init__(self, url: str, detail: str, code: str = "", status: int | None = None) -> None:
        super().__init__(f"{url}: {detail}")
        self.url, self.detail, self.code, self.status = url, detail, code, status


class PeerRefusedError(PeerError):
    """The service understood and refused, or failed on this very request: repeating it is charged as an attempt."""


class PeerUnavailableError(PeerError):
    """The service is down, busy or restarting: worth waiting for. `retry_after` is its own advice, in seconds."""

    def __init__(
        self, url: str, detail: str, code: str = "", status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(url, detail, code, status)
        self.retry_after = retry_after


@cache
def _certificates() -> ssl.SSLContext:
    """Read once: it takes longer than most answers, and the gateway makes its clients anew for every job."""
    return httpx.create_ssl_context()


class Peer:
    """One service at a base URL."""

    def __init__(self, url: str, token: str | None, timeout_seconds: float = 600.0) -> None:
        headers = {"accept": wire.MSGPACK} | ({"authorization": f"Bearer {token}"} if token else {})
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        timeout = httpx.Timeout(timeout_seconds, connect=CONNECT_SECONDS)
        self.url = url.rstrip("/")
        self._client = httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=timeout, limits=limits, verify=_certificates()
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def capabilities(self) -> Capabilities:
        return await self._exchange("GET", "/v1/capabilities", None, Capabilities)

    async def ready(self) -> None:
        """Raises PeerUnavailableError while the service is not ready."""
        await self._exchange("GET", "/readyz", None, dict)

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        return await self._exchange("POST", "/v1/generate", request, GenerateResponse)

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        return await self._exchange("POST", "/v1/score", request, ScoreResponse)

    async def verify(self, request: VerifyRequest) -> VerifyResponse:
        return await self._exchange("POST", "/v1/verify", request, VerifyResponse)

    async def _exchange(self, method: str, path: str, message: Any, kind: type[T]) -> T:
        content = wire.encode(message) if message is not None else None
        headers = {"content-type": wire.MSGPACK} if message is not None else {}
        try:
            response = await self._client.request(method, path, content=content, headers=headers)
        except httpx.TransportError as error:
            raise PeerUnavailableError(self.url, f"no answer to {path}: {error or type(error).__name__}") from error
        if response.is_success:
            media_type = wire.MSGPACK if wire.MSGPACK in response.headers.get("content-type", "") else wire.JSON
            return wire.decode(response.content, kind, media_type)
        raise self._error(response, path)

    def _error(self, response: httpx.Response, path: str) -> PeerError:
        detail, code = response.text[:500], ""
        try:
            document = msgspec.json.decode(response.content, type=dict[str, Any])
            detail, code = str(document.get("detail", detail)), str(document.get("code", ""))
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # a proxy's page, not ours: its text is the detail
        detail = f"{path} answered {response.status_code}: {detail}"
        if response.status_code in RETRYABLE:
            advice = response.headers.get("retry-after", "")
            after = float(advice) if advice.isdigit() else None
            return PeerUnavailableError(self.url, detail, code, response.status_code, after)
        return PeerRefusedError(self.url, detail, code, response.status_code)
