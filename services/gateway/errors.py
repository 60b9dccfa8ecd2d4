"""What the gateway refuses, as typed errors that its OpenAPI document lists."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec

from potstill.service.errors import (
    PROBLEM_JSON,
    ConflictError,
    MalformedRequestError,
    NotFoundError,
    Problem,
    ServiceError,
    UnauthorizedError,
    UnavailableError,
    UnprocessableError,
)


class NoSuchJobError(NotFoundError):
    code, title = "job_not_found", "There is no job of this id"


class NoSuchStepError(NotFoundError):
    code, title = "step_not_found", "There are no samples of this step"


class JobRefusedError(UnprocessableError):
    """The spec was read, but this deployment cannot run it. One entry of `errors` for each reason."""

    code, title = "invalid_job", "The job cannot be run as it is written"


class StateConflictError(ConflictError):
    code, title = "illegal_transition", "The job's state does not allow this"


class IdempotencyKeyReusedError(ConflictError):
    code, title = "idempotency_key_reused", "The idempotency key belongs to another request"


class ServiceDownError(UnavailableError):
    """A service that the job needs did not answer, so nobody can say whether the job can run."""

    code, title = "service_unavailable", "A service that the job needs does not answer"


class NotConfiguredError(UnavailableError):
    code, title = "not_configured", "The gateway was not told where a service is"


class QueueDownError(UnavailableError):
    code, title = "queue_unavailable", "Redis does not answer"


def openapi_problems(*kinds: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that raises these, beside those that every route may raise."""
    by_status: defaultdict[int, list[type[ServiceError]]] = defaultdict(list)
    every_route: tuple[type[ServiceError], ...] = (
        MalformedRequestError,
        UnauthorizedError,
        UnprocessableError,
        QueueDownError,
    )
    for kind in (*kinds, *every_route):
        by_status[kind.status].append(kind)
    schema = msgspec.json.schema(Problem)
    inlined = {**schema["$defs"]["Problem"], "properties": dict(schema["$defs"]["Problem"]["properties"])}
    inlined["properties"]["errors"] = {"type": "array", "items": schema["$defs"]["FieldError"]}
    return {
        status: {
            "description": "; ".join(f"`{kind.code}`: {kind.title}" for kind in dict.fromkeys(found)),
            "content": {PROBLEM_JSON: {"schema": inlined}},
        }
        for status, found in by_status.items()
    }
