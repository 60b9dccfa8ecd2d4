"""The REST API of jobs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from potstill.contracts.job import (
    CheckpointList,
    EventList,
    Job,
    JobList,
    JobSpec,
    MetricsList,
    TrajectoryList,
    Validation,
)
from services.gateway.errors import (
    IdempotencyKeyReusedError,
    JobRefusedError,
    NoSuchJobError,
    NoSuchStepError,
    NotConfiguredError,
    ServiceDownError,
    StateConflictError,
    openapi_problems,
)
from services.gateway.event_stream import stream_events
from services.gateway.service import JobService

CURSOR = r"^[0-9]{1,20}-[0-9]{1,20}$"
EVENT_STREAM = "text/event-stream"
REFUSALS = (JobRefusedError, ServiceDownError, NotConfiguredError)

router = APIRouter(tags=["jobs"])


def _service(request: Request) -> JobService:
    service: JobService = request.app.state.jobs
    return service


Jobs = Annotated[JobService, Depends(_service)]
JobId = Annotated[str, Path(pattern=r"^job_[0-9a-z]{1,40}$", description="As the submission answered it.")]
Cursor = Annotated[str | None, Query(pattern=CURSOR, description="Id of the last entry seen.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Entries in one answer.")]
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=200, description="The same key and body again answer with the same job."),
]


@router.post("/v1/jobs", status_code=202, responses=openapi_problems(*REFUSALS, IdempotencyKeyReusedError))
async def submit(spec: JobSpec, jobs: Jobs, response: Response, idempotency_key: IdempotencyKey = None) -> Job:
    """Check a job against its data and the services that run, and queue it."""
    job = await jobs.submit(spec, idempotency_key)
    response.headers["location"] = f"/v1/jobs/{job.id}"
    return job


@router.post("/v1/jobs:validate", responses=openapi_problems(*REFUSALS))
async def validate(spec: JobSpec, jobs: Jobs) -> Validation:
    """All the checks of a submission, and nothing else."""
    return await jobs.validate(spec)


@router.get("/v1/jobs", responses=openapi_problems(NoSuchJobError))
async def list_jobs(
    jobs: Jobs,
    after: Annotated[str | None, Query(max_length=64, description="Id of the last job seen.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> JobList:
    """Jobs, newest first."""
    return await jobs.page(after, limit)


@router.get("/v1/jobs/{job_id}", responses=openapi_problems(NoSuchJobError))
async def get_job(job_id: JobId, jobs: Jobs) -> Job:
    """One job."""
    return await jobs.get(job_id)


@router.post("/v1/jobs/{job_id}/cancel", responses=openapi_problems(NoSuchJobError, StateConflictError))
async def cancel(job_id: JobId, jobs: Jobs) -> Job:
    """Stop a job for good; its checkpoints stay."""
    return await jobs.command(job_id, "cancel")


@router.post("/v1/jobs/{job_id}/pause", responses=openapi_problems(NoSuchJobError, StateConflictError))
async def pause(job_id: JobId, jobs: Jobs) -> Job:
    """Take a job off its lane after the step in progress."""
    return await jobs.command(job_id, "pause")


@router.post("/v1/jobs/{job_id}/resume", responses=openapi_problems(NoSuchJobError, StateConflictError))
async def resume(job_id: JobId, jobs: Jobs) -> Job:
    """Queue a paused job again; it goes on where it was."""
    return await jobs.command(job_id, "resume")


_STREAM_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A page of events, or every event as it comes when `text/event-stream` is accepted.",
        "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
    }
}


@router.get(
    "/v1/jobs/{job_id}/events",
    response_model=EventList,
    responses=openapi_problems(NoSuchJobError) | _STREAM_CONTENT,
)
async def events(
    request: Request,
    job_id: JobId,
    jobs: Jobs,
    after: Cursor = None,
    limit: Limit = 100,
    last_event_id: Annotated[str | None, Header(pattern=CURSOR)] = None,
) -> EventList | StreamingResponse:
    """What happened to a job, oldest first."""
    if EVENT_STREAM not in request.headers.get("accept", ""):
        return await jobs.events(job_id, after, limit)
    await jobs.get(job_id)
    state = request.app.state
    stream = stream_events(jobs.store, job_id, last_event_id or after, lambda: getattr(state, "draining", False))
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers=headers)


@router.get("/v1/jobs/{job_id}/metrics", responses=openapi_problems(NoSuchJobError))
async def step_metrics(job_id: JobId, jobs: Jobs, after: Cursor = None, limit: Limit = 100) -> MetricsList:
    """The numbers of each step, oldest first."""
    return await jobs.metrics(job_id, after, limit)


@router.get("/v1/jobs/{job_id}/checkpoints", responses=openapi_problems(NoSuchJobError))
async def checkpoints(job_id: JobId, jobs: Jobs) -> CheckpointList:
    """Complete checkpoints, oldest first; the final model last."""
    return await jobs.checkpoints(job_id)


@router.get("/v1/jobs/{job_id}/trajectories", responses=openapi_problems(NoSuchJobError, NoSuchStepError))
async def trajectories(job_id: JobId, jobs: Jobs, step: Annotated[int | None, Query(ge=0)] = None) -> TrajectoryList:
    """A few samples of a step, or of the newest, to read."""
    return await jobs.trajectories(job_id, step)
