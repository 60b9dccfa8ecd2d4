"""What an engine must do, and the engines there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from potstill.contracts.capabilities import EngineInfo, ModelInfo
from potstill.contracts.scoring import ScoreRequest, ScoreResponse
from potstill.service.errors import UnavailableError
from potstill.service.settings import SettingsError
from services.teacher.settings import TeacherSettings


class Feature(StrEnum):
    """What a request may ask for; one that an engine does not list is refused, never ignored."""

    LOGPROBS = "logprobs"
    TEMPERATURE = "temperature"  # any above 0, not only 1
    CANDIDATE_IDS = "candidate_ids"
    TOP_K = "top_k"
    ENTROPY = "entropy"


class CacheUnit(StrEnum):
    """What an answer may be kept of, such that having kept it changes nothing that the engine promises."""

    SEQUENCE = "sequence"
    GROUP = "group"  # the sequences of a request that share a prompt: the last bits depend on who is in it


class EngineDeadError(UnavailableError):
    """The engine will not answer again: the process must be started anew."""

    code = "engine_dead"


@dataclass(frozen=True)
class EngineFacts:
    """What is known once the model is loaded."""

    model: ModelInfo
    engine: EngineInfo
    features: frozenset[Feature]
    max_top_k: int
    memory_bytes: int  # what admitted work may take together
    cache_unit: CacheUnit = CacheUnit.GROUP


class Engine(Protocol):
    async def start(self) -> EngineFacts:
        """Load the model. Raises SettingsError when it cannot be served."""

    async def stop(self) -> None:
        """Let running work end and free the model."""

    async def alive(self) -> None:
        """Make the loaded engine do something. Raises EngineDeadError when it never will again."""

    def estimate_bytes(self, request: ScoreRequest) -> int:
        """Memory that the request takes at its peak, its answer included. Called after `start`."""

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        """Score a valid, admitted request. Cancelling drops what was not begun."""


def _torch(settings: TeacherSettings) -> Engine:
    from services.teacher.torch_engine import TorchEngine

    return TorchEngine(settings)


def _vllm(settings: TeacherSettings) -> Engine:
    from services.teacher.vllm_engine import VllmEngine

    return VllmEngine(settings)


# Loaded by name, so that a torch teacher needs no vLLM and the other way round.
ENGINES: dict[str, Callable[[TeacherSettings], Engine]] = {"torch": _torch, "vllm": _vllm}


def create_engine(settings: TeacherSettings) -> Engine:
    """The engine that the settings name. Raises SettingsError when there is none of that name."""
    try:
        return ENGINES[settings.teacher_engine](settings)
    except KeyError:
        known = ", ".join(ENGINES)
        raise SettingsError(f"POTSTILL_TEACHER_ENGINE: {settings.teacher_engine!r} is none of {known}") from None
    except ImportError as error:
        raise SettingsError(
            f"POTSTILL_TEACHER_ENGINE: {settings.teacher_engine!r} is not installed here ({error.name}): "
            f"install the potstill extra of that engine"
        ) from error
