"""The teacher's HTTP service."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import numpy as np
from fastapi import FastAPI, Request, Response

import potstill
from potstill.contracts.capabilities import Capabilities
from potstill.contracts.scoring import ScoreRequest, ScoreResponse
from potstill.service.app import create_app
from potstill.service.background import in_background
from potstill.service.errors import ConflictError, ServiceError, UnavailableError
from potstill.service.http import message_response, openapi_messages, read_message, until_disconnect
from potstill.service.logs import get_logger
from services.teacher import metrics
from services.teacher.admission import Admission
from services.teacher.cache import ScoreCache
from services.teacher.engine import Engine, EngineDeadError, EngineFacts, create_engine
from services.teacher.settings import TeacherSettings
from services.teacher.validation import check_request

TOKENIZER_HEADER = "x-potstill-tokenizer"
ARRAY_FIELDS = ("logprobs", "candidate_logprobs", "top_logprobs", "tail_logprobs", "entropy")
RETRY_SECONDS = 5.0
WATCH_SECONDS = 5.0
ANSWER_SECONDS = 5.0

log = get_logger("teacher")


class Teacher:
    """An engine that loads in the background, and the admission in front of it once it has."""

    def __init__(self, settings: TeacherSettings, engine: Engine, on_death: Callable[[], None]) -> None:
        self._settings = settings
        self._engine = engine
        self._on_death = on_death
        self._facts: EngineFacts | None = None
        self._admission: Admission | None = None
        self._cache: ScoreCache | None = None
        self._failure: ServiceError | None = None

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Load and watch the engine while the probes are served; stop it at the end."""
        keeper = in_background(self._keep(), "engine", "teacher")
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.wait({keeper})
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
        facts = self.facts()
        return Capabilities(
            service="teacher",
            version=potstill.__version__,
            model=facts.model,
            engine=facts.engine,
            limits={
                "max_length": facts.model.max_length,
                "max_top_k": facts.max_top_k,
                "memory_bytes": facts.memory_bytes,
                "max_body_bytes": self._settings.max_body_bytes,
            },
            features=tuple(sorted(facts.features)),
        )

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        """Validate, answer what is kept, admit and score the rest, and count."""
        check_request(request, self.facts())
        assert self._cache is not None
        response = await self._cache.score(request, self._compute)
        _count(request, response)
        return response

    async def _compute(self, request: ScoreRequest) -> ScoreResponse:
        assert self._admission is not None
        async with self._admission.admit(self._engine.estimate_bytes(request)):
            begun = time.perf_counter()
            response = await self._engine.score(request)
            metrics.phase_seconds.labels("compute").observe(time.perf_counter() - begun)
        return response

    async def _keep(self) -> None:
        """Load, then ask the engine from time to time, and end the service with it."""
        try:
            await self._load()
            while self._facts is not None:
                await asyncio.sleep(WATCH_SECONDS)
                await self._look()
        except EngineDeadError as error:
            self._failure = error
            log.critical("the service ends, so that a supervisor can start it again", reason=error.detail)
            self._on_death()

    async def _look(self) -> None:
        """Raises EngineDeadError. A question that a dying engine leaves open is never answered; the next one is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._engine.alive()

    async def _load(self) -> None:
        begun = time.perf_counter()
        try:
            facts = await self._engine.start()
        except EngineDeadError:
            raise
        except Exception as error:  # whatever it was, the probes must say so
            self._failure = UnavailableError(f"the model could not be loaded: {error}", code="model_load_failed")
            log.error("model load failed", model=self._settings.teacher_model, exc_info=error)
            return
        self._admission = Admission(
            facts.memory_bytes, self._settings.teacher_max_waiting, self._settings.teacher_wait_seconds
        )
        self._cache = ScoreCache(self._settings.teacher_score_cache_bytes, facts)
        self._facts = facts
        seconds = round(time.perf_counter() - begun, 1)
        log.info("model loaded", model=facts.model.id, engine=facts.engine.name, seconds=seconds)


def build(settings: TeacherSettings, on_death: Callable[[], None] = lambda: None) -> FastAPI:
    """The app of this process; `on_death` is called once the engine cannot answer any more.

    Raises SettingsError when the engine does not exist here.
    """
    teacher = Teacher(settings, create_engine(settings), on_death)
    app = create_app(
        "teacher",
        settings,
        capabilities=teacher.capabilities,
        live=teacher.live,
        ready=teacher.ready,
        lifespan=teacher.run,
    )

    @app.post("/v1/score", openapi_extra=openapi_messages(ScoreRequest, ScoreResponse), tags=["teacher"])
    async def score(request: Request) -> Response:
        """Log-probabilities of given response tokens."""
        try:
            _check_tokenizer(request, teacher.facts())
            message = await read_message(request, ScoreRequest)
            return message_response(request, await until_disconnect(request, teacher.score(message)))
        except ServiceError as error:
            metrics.rejections.labels(error.code).inc()
            raise

    return app


def _check_tokenizer(request: Request, facts: EngineFacts) -> None:
    given = request.headers.get(TOKENIZER_HEADER)
    if given is not None and given != facts.model.tokenizer:
        raise ConflictError(
            f"the caller's tokenizer is {given} and this teacher's is {facts.model.tokenizer}: token ids would mean "
            f"other text; use a teacher with the student's tokenizer",
            code="tokenizer_mismatch",
        )


def _count(request: ScoreRequest, response: ScoreResponse) -> None:
    metrics.sequences.inc(len(request.sequences))
    metrics.tokens.labels("response").inc(sum(len(s.response_token_ids) for s in request.sequences))
    for name in ARRAY_FIELDS:
        arrays = [value for score in response.sequences if (value := getattr(score, name)) is not None]
        missing = sum(int(np.isnan(array).sum()) for array in arrays)
        if missing:
            metrics.missing_values.labels(name).inc(missing)
