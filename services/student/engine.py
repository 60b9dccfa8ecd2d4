"""What an engine must do, and the engines there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from potstill.contracts.capabilities import EngineInfo, ModelInfo
from potstill.contracts.generation import Prompt, Sample, Sampling
from potstill.service.errors import UnavailableError
from potstill.service.settings import SettingsError
from services.student.policy import PolicyFolder
from services.student.settings import StudentSettings


class EngineDeadError(UnavailableError):
    """The engine will not answer again: the process must be started anew."""

    code = "engine_dead"


@dataclass(frozen=True)
class EngineFacts:
    """What is known once the model is loaded."""

    model: ModelInfo
    engine: EngineInfo
    features: frozenset[str]


class Engine(Protocol):
    async def start(self) -> EngineFacts:
        """Load the model. Raises SettingsError when it cannot be served."""

    async def stop(self) -> None:
        """Drop what is running and free the model."""

    async def alive(self) -> None:
        """Make the loaded engine do something. Raises EngineDeadError when it never will again."""

    async def generate(self, prompt: Prompt, sampling: Sampling, top_k: int) -> tuple[Sample, ...]:
        """The prompt's n samples, in order. Cancelling frees what they hold. Inputs are valid (see `validation`)."""

    async def load_policy(self, policy: PolicyFolder) -> None:
        """Replace the weights; called while no sample is in flight.

        All or nothing: raises WeightsRejectedError with the old weights still serving.
        """


def sample_seed(seed: int, index: int) -> int:
    """The 63-bit seed of sample `index` of a prompt: hashed, so that neighbouring seeds share no stream."""
    return int(np.random.SeedSequence((seed, index)).generate_state(1, np.uint64)[0] >> 1)


def _torch(settings: StudentSettings) -> Engine:
    from services.student.torch_engine import TorchEngine

    return TorchEngine(settings)


def _vllm(settings: StudentSettings) -> Engine:
    from services.student.vllm_engine import VllmEngine

    return VllmEngine(settings)


# Loaded by name, so that a torch student needs no vLLM and the other way round.
ENGINES: dict[str, Callable[[StudentSettings], Engine]] = {"torch": _torch, "vllm": _vllm}


def create_engine(settings: StudentSettings) -> Engine:
    """The engine that the settings name. Raises SettingsError when there is none of that name."""
    try:
        return ENGINES[settings.student_engine](settings)
    except KeyError:
        known = ", ".join(ENGINES)
        raise SettingsError(f"POTSTILL_STUDENT_ENGINE: {settings.student_engine!r} is none of {known}") from None
    except ImportError as error:
        raise SettingsError(
            f"POTSTILL_STUDENT_ENGINE: {settings.student_engine!r} is not installed here ({error.name}): "
            f"install the potstill extra of that engine"
        ) from error
