"""The answer to a request whose shape is wrong."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError

from potstill.contracts.advice import advice
from potstill.contracts.job import JobSpec
from potstill.service.app import field_path, problem_response
from potstill.service.errors import FieldError, MalformedRequestError, ServiceError, UnprocessableError
from services.gateway import metrics
from services.gateway.errors import NoSuchJobError

INVALID_REQUEST = "invalid_request"


async def on_invalid_request(request: Request, error: Exception) -> Response:
    """Answer a request whose shape is wrong, with every problem at once."""
    assert isinstance(error, RequestValidationError)
    problem = _problem(error.errors())
    if request.method == "POST":
        metrics.refusals.labels(problem.code).inc()
    return problem_response(problem, request.url.path, str(request.scope["state"]["request_id"]))


def _problem(found: Any) -> ServiceError:
    if unreadable := [item for item in found if item["type"] == "json_invalid"]:
        place, reason = unreadable[0]["loc"][-1], unreadable[0]["ctx"]["error"]
        return MalformedRequestError(f"the body is not JSON: {reason} at character {place}")
    if any(item["loc"] == ("path", "job_id") for item in found):
        return NoSuchJobError("a job id looks like job_… as the submission answered it; there is no job of this id")
    fields = tuple(FieldError(field_path(item["loc"]), advice(item, JobSpec)) for item in found)
    detail = "; ".join(f"{item.field}: {item.message}" for item in fields)
    return UnprocessableError(detail, code=INVALID_REQUEST, errors=fields)
