"""The student's HTTP service."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from fastapi import FastAPI, Request, Response

import potstill
from potstill.contracts.capabilities import Capabilities
from potstill.contracts.generation import GenerateRequest, GenerateResponse, PromptSamples, Sample
from potstill.service.app import create_app
from potstill.service.background import in_background
from potstill.service.errors import ServiceError, UnavailableError
from potstill.service.http import message_response, openapi_messages, read_message, until_disconnect
from potstill.service.logs import get_logger
from potstill.service.settings import SettingsError
from services.student import metrics
from services.student.admission import Admission
from services.student.engine import Engine, EngineDeadError, EngineFacts, create_engine
from services.student.policy import PolicyGate
from services.student.settings import StudentSettings
from services.student.validation import check_request, sample_count

RETRY_SECONDS = 5.0
WATCH_SECONDS = 5.0

log = get_logger("student")


class Student:
    """An engine that loads in the background; in front of it, admission and the policy gate."""

    def __init__(self, settings: StudentSettings, engine: Engine, on_death: Callable[[], None]) -> None:
        self._settings = settings
        self._engine = engine
        self._on_death = on_death
        self._admission = Admission(settings.student_max_pending)
        self._gate = PolicyGate(engine.load_policy, settings.artifacts)
        self._facts: EngineFacts | None = None
        self._failure: ServiceError | None = None

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Load and watch the engine while the probes are served; stop it at the end."""
        keeper = in_background(self._keep(), "engine", "student")
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.wait({keeper})
            await self._gate.close()
            await self._engine.stop()

    async def live(self) -> None:
        """Ask the engine; while the model loads, being able to answer is enough."""
        if self._failure is not None:
            raise self._failure
        if self._facts is not None:
            await self._engine.alive()

    async def ready(self) -> None:
        self.facts()

    def facts(self) -> EngineFacts:
        """Raises UnavailableError until the model is loaded."""
        if self._failure is not None:
            raise self._failure
        if self._facts is None:
            raise UnavailableError("the model is still loading", code="loading", retry_after=RETRY_SECONDS)
        return self._facts

    def capabilities(self) -> Capabilities:
        facts, settings = self.facts(), self._settings
        return Capabilities(
            service="student",
            version=potstill.__version__,
            model=facts.model,
            engine=facts.engine,
            limits={
                "max_length": facts.model.max_length,
                "max_pending": settings.student_max_pending,
                "max_top_k": settings.student_max_top_k,
                "max_lora_rank": settings.student_max_lora_rank,
                "slots": settings.student_slots,
                "max_body_bytes": settings.max_body_bytes,
            },
            features=tuple(sorted(facts.features)),
        )

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        """Validate, admit, wait for the policy, sample and count."""
        check_request(request, self.facts().model, self._settings)
        count = sample_count(request)
        with self._admission.admit(count):
            try:
                async with self._gate.admit(request.policy):
                    begun = time.perf_counter()
                    groups = await self._samples(request)
            except asyncio.CancelledError:
                metrics.aborts.inc(count)
                raise
        metrics.generate_seconds.observe(time.perf_counter() - begun)
        _count(request, groups)
        return GenerateResponse(prompts=tuple(PromptSamples(samples) for samples in groups))

    async def _samples(self, request: GenerateRequest) -> list[tuple[Sample, ...]]:
        """All prompts at once. If one fails or the caller goes, none is left running when this returns."""
        tasks = [
            asyncio.create_task(self._engine.generate(prompt, request.sampling, request.top_k))
            for prompt in request.prompts
        ]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self) -> None:
        try:
            await self._load()
            while True:
                await asyncio.sleep(WATCH_SECONDS)
                await self._engine.alive()
        except EngineDeadError as error:
            self._failure = error
        except (SettingsError, OSError, RuntimeError, ValueError, MemoryError) as error:
            self._failure = UnavailableError(f"the model could not be loaded: {error}", code="model_load_failed")
            log.error("model load failed", model=self._settings.student_model, exc_info=error)
        log.critical("the service ends, so that a supervisor can start it again", reason=self._failure.detail)
        self._on_death()

    async def _load(self) -> None:
        begun = time.perf_counter()
        facts = await self._engine.start()
        self._facts = facts
        metrics.policy_version.set(self._gate.version)
        seconds = round(time.perf_counter() - begun, 1)
        log.info("model loaded", model=facts.model.id, engine=facts.engine.name, seconds=seconds)


def build(settings: StudentSettings, on_death: Callable[[], None] = lambda: None) -> FastAPI:
    """The app of this process; `on_death` is called once the engine cannot answer any more.

    Raises SettingsError when the engine does not exist here.
    """
    student = Student(settings, create_engine(settings), on_death)
    app = create_app(
        "student",
        settings,
        capabilities=student.capabilities,
        live=student.live,
        ready=student.ready,
        lifespan=student.run,
    )

    @app.post("/v1/generate", openapi_extra=openapi_messages(GenerateRequest, GenerateResponse), tags=["student"])
    async def generate(request: Request) -> Response:
        """Samples of given prompts. A sample ends with a stop token of the request, or after `max_tokens`."""
        try:
            message = await read_message(request, GenerateRequest)
            return message_response(request, await until_disconnect(request, student.generate(message)))
        except ServiceError as error:
            metrics.rejections.labels(error.code).inc()
            raise

    return app


def _count(request: GenerateRequest, groups: list[tuple[Sample, ...]]) -> None:
    metrics.tokens.labels("prompt").inc(sum(len(prompt.token_ids) for prompt in request.prompts))
    for sample in (sample for samples in groups for sample in samples):
        metrics.samples.labels(sample.finish_reason).inc()
        metrics.tokens.labels("response").inc(len(sample.token_ids))
