"""The REST client: jobs over HTTP, typed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Self, TypeVar

import httpx
import msgspec
from pydantic import BaseModel

from potstill.contracts.job import (
    Checkpoint,
    CheckpointList,
    Event,
    EventList,
    Job,
    JobList,
    JobSpec,
    MetricsList,
    StepMetrics,
    TrajectoryList,
    Validation,
)
from potstill.service.errors import Problem
from potstill.service.peers import RETRYABLE

M = TypeVar("M", bound=BaseModel)
PAGE = 500
RECONNECT_SECONDS = 1.0
SILENCE_SECONDS = 60.0  # a live stream sends a comment much more often than this


class ApiError(Exception):
    """The gateway refused or failed; `problem` is its whole answer."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem

    @property
    def code(self) -> str:
        return self.problem.code

    @property
    def status(self) -> int:
        return self.problem.status


class UnreachableError(Exception):
    """No answer from the gateway."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"the gateway at {url} does not answer ({reason}): is it running, and is POTSTILL_URL right?")


class Client:
    """One gateway. Every method raises ApiError or UnreachableError."""

    def __init__(self, url: str, token: str | None = None, timeout_seconds: float = 60.0) -> None:
        self.url = url.rstrip("/")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def submit(self, spec: JobSpec | dict[str, Any], *, idempotency_key: str | None = None) -> Job:
        """Queue a job. The same key and spec again answer with the same job."""
        headers = {"idempotency-key": idempotency_key} if idempotency_key else {}
        return self._call("POST", "/v1/jobs", Job, json=_document(spec), headers=headers)

    def validate(self, spec: JobSpec | dict[str, Any]) -> Validation:
        """Everything that `submit` checks, without queueing anything."""
        return self._call("POST", "/v1/jobs:validate", Validation, json=_document(spec))

    def get(self, job_id: str) -> Job:
        return self._call("GET", f"/v1/jobs/{job_id}", Job)

    def list(self, *, after: str | None = None, limit: int = 20) -> JobList:
        """Jobs, newest first; `after` is the id of the last one seen."""
        return self._call("GET", "/v1/jobs", JobList, params=_given(after=after, limit=limit))

    def cancel(self, job_id: str) -> Job:
        return self._call("POST", f"/v1/jobs/{job_id}/cancel", Job)

    def pause(self, job_id: str) -> Job:
        return self._call("POST", f"/v1/jobs/{job_id}/pause", Job)

    def resume(self, job_id: str) -> Job:
        return self._call("POST", f"/v1/jobs/{job_id}/resume", Job)

    def event_page(self, job_id: str, *, after: str | None = None, limit: int = PAGE) -> EventList:
        """Events that are there now, oldest first, after an event id."""
        return self._call("GET", f"/v1/jobs/{job_id}/events", EventList, params=_given(after=after, limit=limit))

    def past_events(self, job_id: str, *, after: str | None = None) -> Iterator[Event]:
        """Every event that is there now."""
        while True:
            page = self.event_page(job_id, after=after)
            yield from page.data
            if not page.has_more:
                return
            after = page.data[-1].id

    def events(self, job_id: str, *, after: str | None = None, patience_seconds: float = 60.0) -> Iterator[Event]:
        """Every event as it comes, until the job has ended; reconnects after the last one seen.

        A gateway, or a Redis behind it, that stays away longer than `patience_seconds` raises UnreachableError.
        """
        last, silent_since = after, time.monotonic()
        while True:
            try:
                for event in self._stream(job_id, last):
                    last, silent_since = event.id, time.monotonic()
                    yield event
                if self.get(job_id).status.is_terminal:
                    yield from self.past_events(job_id, after=last)
                    return
                silent_since = time.monotonic()
            except (httpx.TransportError, UnreachableError, ApiError) as error:
                if isinstance(error, ApiError) and error.status not in RETRYABLE:
                    raise
                if time.monotonic() - silent_since > patience_seconds:
                    raise UnreachableError(self.url, str(error) or type(error).__name__) from error
            time.sleep(RECONNECT_SECONDS)

    def metrics(self, job_id: str) -> Sequence[StepMetrics]:
        """The numbers of every step so far."""
        found: list[StepMetrics] = []
        while True:
            after = found[-1].id if found else None
            path, params = f"/v1/jobs/{job_id}/metrics", _given(after=after, limit=PAGE)
            page = self._call("GET", path, MetricsList, params=params)
            found += page.data
            if not page.has_more:
                return found

    def checkpoints(self, job_id: str) -> Sequence[Checkpoint]:
        return self._call("GET", f"/v1/jobs/{job_id}/checkpoints", CheckpointList).data

    def trajectories(self, job_id: str, *, step: int | None = None) -> TrajectoryList:
        """A few samples of a step, or of the newest."""
        return self._call("GET", f"/v1/jobs/{job_id}/trajectories", TrajectoryList, params=_given(step=step))

    def _stream(self, job_id: str, after: str | None) -> Iterator[Event]:
        headers = {"accept": "text/event-stream"} | ({"last-event-id": after} if after else {})
        timeout = httpx.Timeout(SILENCE_SECONDS)
        with self._http.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers, timeout=timeout) as response:
            if not response.is_success:
                response.read()
                raise _api_error(response)
            yield from _parse_stream(response.iter_lines())

    def _call(
        self,
        method: str,
        path: str,
        kind: type[M],
        *,
        params: dict[str, Any] | None = None,
        json: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> M:
        try:
            response = self._http.request(method, path, params=params, json=json, headers=headers)
        except httpx.TransportError as error:
            raise UnreachableError(self.url, str(error) or type(error).__name__) from error
        if not response.is_success:
            raise _api_error(response)
        return kind.model_validate_json(response.content)


def _parse_stream(lines: Iterator[str]) -> Iterator[Event]:
    """The events of a text/event-stream; each carries one whole Event as its data."""
    data: list[str] = []
    for line in lines:
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and data:
            yield Event.model_validate_json("\n".join(data))
            data.clear()


def _document(spec: JobSpec | dict[str, Any]) -> dict[str, Any]:
    return spec.model_dump(mode="json", by_alias=True) if isinstance(spec, JobSpec) else spec


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _api_error(response: httpx.Response) -> ApiError:
    try:
        return ApiError(msgspec.json.decode(response.content, type=Problem))
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Something between us and the gateway answered.
        detail = f"{response.request.url} answered {response.status_code}: {response.text[:200].strip()}"
        return ApiError(Problem("about:blank", response.reason_phrase, response.status_code, detail, "not_a_gateway"))
