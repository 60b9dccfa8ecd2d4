"""Typed errors of the HTTP services, and their form on the wire: application/problem+json (RFC 9457)."""

from __future__ import annotations

from typing import ClassVar

import msgspec

PROBLEM_JSON = "application/problem+json"


class FieldError(msgspec.Struct, frozen=True):
    field: str
    message: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error document."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str = ""
    request_id: str = ""
    errors: tuple[FieldError, ...] = ()


class ServiceError(Exception):
    """An error that reaches the caller. `detail` says what happened and what to do."""

    status: ClassVar[int] = 500
    code: str = "internal"
    title: ClassVar[str] = "Something went wrong inside the service"

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        errors: tuple[FieldError, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code
        self.errors = errors
        self.retry_after = retry_after

    def problem(self, instance: str, request_id: str) -> Problem:
        return Problem(
            type=f"urn:potstill:problem:{self.code}",
            title=self.title,
            status=self.status,
            detail=self.detail,
            code=self.code,
            instance=instance,
            request_id=request_id,
            errors=self.errors,
        )


class MalformedRequestError(ServiceError):
    status, code, title = 400, "malformed_request", "The request could not be read"


class UnauthorizedError(ServiceError):
    status, code, title = 401, "unauthorized", "A valid bearer token is needed"


class NotFoundError(ServiceError):
    status, code, title = 404, "not_found", "There is no such thing"


class ConflictError(ServiceError):
    status, code, title = 409, "conflict", "The request does not fit the present state"


class TooLargeError(ServiceError):
    status, code, title = 413, "too_large", "The request is larger than this service can take"


class UnprocessableError(ServiceError):
    status, code, title = 422, "unprocessable", "The request was read but cannot be done"


class TooManyRequestsError(ServiceError):
    status, code, title = 429, "too_many_requests", "Too many requests from this client"


class OverloadedError(ServiceError):
    status, code, title = 503, "overloaded", "The service is at its admission limit"


class UnavailableError(ServiceError):
    status, code, title = 503, "unavailable", "The service cannot do its work at the moment"


class DeadlineError(ServiceError):
    status, code, title = 504, "deadline_exceeded", "The request did not end before its deadline"


class PolicyLoadError(ServiceError):
    """A policy could not be loaded; the old one goes on serving."""

    status, code, title = 502, "policy_load_failed", "The policy could not be loaded"
