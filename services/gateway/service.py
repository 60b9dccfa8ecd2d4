"""What the gateway does with jobs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from typing import Any

from potstill.broker.jobs import (
    IdempotencyConflictError,
    IllegalTransitionError,
    JobNotFoundError,
    JobRecord,
    JobStore,
)
from potstill.contracts.job import (
    CheckpointList,
    Event,
    EventList,
    Job,
    JobList,
    JobSpec,
    MetricsList,
    Progress,
    StepMetrics,
    TrajectoryList,
    Validation,
)
from potstill.contracts.state import TRANSITIONS, JobState
from potstill.service.errors import ServiceError
from services.gateway import metrics
from services.gateway.admission import Admitted, admit
from services.gateway.artifacts import JobArtifacts
from services.gateway.errors import IdempotencyKeyReusedError, NoSuchJobError, StateConflictError
from services.gateway.settings import GatewaySettings

# The state that each command asks for.
TARGETS = {"cancel": JobState.CANCELLED, "pause": JobState.PAUSED, "resume": JobState.QUEUED}


class JobService:
    """Jobs as people see them, over the store of records and the artifacts of the learner."""

    def __init__(self, store: JobStore, settings: GatewaySettings) -> None:
        self.store = store
        self._settings = settings

    async def submit(self, spec: JobSpec, idempotency_key: str | None) -> Job:
        """Check, store and queue. Nothing is stored when it is refused."""
        digest = _digest(spec)
        if idempotency_key is not None and (known := await self._replayed(idempotency_key, digest)):
            metrics.submissions.labels("replayed").inc()
            return await self.get(known)
        admitted = await self._admit(spec)
        mine = f"job_{secrets.token_hex(12)}"
        document = admitted.spec.model_dump(mode="json", by_alias=True)
        try:
            made = await self.store.create(mine, document, key=idempotency_key, digest=digest)
        except IdempotencyConflictError as error:
            raise _key_reused(idempotency_key) from error
        if made == mine:
            await self._announce(mine, admitted)
        metrics.submissions.labels("accepted" if made == mine else "replayed").inc()
        return await self.get(made)

    async def validate(self, spec: JobSpec) -> Validation:
        """The checks of `submit` alone."""
        admitted = await self._admit(spec)
        return Validation(
            train_problems=admitted.train_problems,
            heldout_problems=admitted.heldout_problems,
            warnings=list(admitted.warnings),
        )

    async def get(self, job_id: str) -> Job:
        return job_view(await self._record(job_id))

    async def page(self, after: str | None, limit: int) -> JobList:
        try:
            records = await self.store.page(after=after, limit=limit + 1)
        except JobNotFoundError as error:
            raise NoSuchJobError(f"{error}: `after` is the id of the last job of the page before") from error
        return JobList(data=[job_view(record) for record in records[:limit]], has_more=len(records) > limit)

    async def command(self, job_id: str, verb: str) -> Job:
        """Cancel, pause or resume; asking again for what is so already changes nothing."""
        before = await self._record(job_id)
        try:
            after = await self.store.command(job_id, verb)
        except IllegalTransitionError as error:
            metrics.commands.labels(verb, "illegal").inc()
            raise _illegal(job_id, verb, error.state) from error
        except JobNotFoundError as error:
            raise _no_such_job(job_id) from error
        metrics.commands.labels(verb, "accepted").inc()
        if after is not before.state:
            await self._say(job_id, "status", f"the job is {after}", {"status": after})
        elif after is not TARGETS[verb] and verb != "resume" and before.command != verb:
            await self._say(job_id, "message", f"asked to {verb}; the learner will at its next step", {})
        return await self.get(job_id)

    async def events(self, job_id: str, after: str | None, limit: int) -> EventList:
        await self._record(job_id)
        events = await self.store.events(job_id, after=after, limit=limit + 1)
        return EventList(data=events[:limit], has_more=len(events) > limit)

    async def metrics(self, job_id: str, after: str | None, limit: int) -> MetricsList:
        await self._record(job_id)
        steps = await self.store.metrics(job_id, after=after, limit=limit + 1)
        page = [StepMetrics(id=cursor, step=values.pop("step"), values=values) for cursor, values in steps[:limit]]
        return MetricsList(data=page, has_more=len(steps) > limit)

    async def checkpoints(self, job_id: str) -> CheckpointList:
        await self._record(job_id)
        return CheckpointList(data=await asyncio.to_thread(self._artifacts(job_id).checkpoints))

    async def trajectories(self, job_id: str, step: int | None) -> TrajectoryList:
        await self._record(job_id)
        return await asyncio.to_thread(self._artifacts(job_id).trajectories, step)

    async def _admit(self, spec: JobSpec) -> Admitted:
        try:
            return await admit(spec, self._settings)
        except ServiceError as error:
            metrics.refusals.labels(error.code).inc()
            raise

    async def _replayed(self, key: str, digest: str) -> str | None:
        try:
            return await self.store.submitted(key, digest)
        except IdempotencyConflictError as error:
            raise _key_reused(key) from error

    async def _record(self, job_id: str) -> JobRecord:
        try:
            return await self.store.get(job_id)
        except JobNotFoundError as error:
            raise _no_such_job(job_id) from error

    async def _announce(self, job_id: str, admitted: Admitted) -> None:
        await self._say(job_id, "status", "the job is queued", {"status": JobState.QUEUED})
        for warning in admitted.warnings:
            await self._say(job_id, "message", warning, {}, level="warning")

    async def _say(self, job_id: str, kind: Any, message: str, data: dict[str, Any], level: Any = "info") -> None:
        event = Event(id="", created_at=time.time(), level=level, type=kind, message=message, data=data)
        await self.store.add_event(job_id, event)

    def _artifacts(self, job_id: str) -> JobArtifacts:
        return JobArtifacts(self._settings.artifacts.resolve(), job_id)


def job_view(record: JobRecord) -> Job:
    """The record as the API answers it."""
    spec = JobSpec.model_validate(record.spec)
    return Job(
        id=record.id,
        status=record.state,
        created_at=int(record.created_at),
        started_at=_seconds(record.started_at),
        finished_at=_seconds(record.finished_at),
        spec=spec,
        error=record.error,
        progress=Progress(step=record.step, steps=spec.training.steps),
        heldout=record.result.get("heldout"),
        checkpoint=record.result.get("checkpoint"),
    )


def _seconds(moment: float | None) -> int | None:
    return None if moment is None else int(moment)


def _digest(spec: JobSpec) -> str:
    canonical = json.dumps(spec.model_dump(mode="json", by_alias=True), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _no_such_job(job_id: str) -> NoSuchJobError:
    return NoSuchJobError(f"there is no job {job_id}; GET /v1/jobs lists those there are")


def _key_reused(key: str | None) -> IdempotencyKeyReusedError:
    return IdempotencyKeyReusedError(f"the idempotency key {key!r} came with another job before: use a new key")


def _illegal(job_id: str, verb: str, state: JobState) -> StateConflictError:
    target = TARGETS[verb]
    allowed = ", ".join(sorted(TRANSITIONS[state])) or "nothing: it has ended"
    return StateConflictError(
        f"{job_id} is {state} and cannot become {target} by {verb}; from {state} a job can become {allowed}"
    )
