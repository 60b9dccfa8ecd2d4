"""Answers kept for sequences that are asked about again, and shared between requests that ask at the same time.

A student that grows sure of itself writes the same response many times, and a ticket that is worked on twice asks the
same again. A teacher's weights never change, so an answer stays right.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.contracts.scoring import ScoreRequest, ScoreResponse, Sequence, SequenceScore
from services.teacher import metrics
from services.teacher.byte_limited import ByteLimited
from services.teacher.engine import CacheUnit, EngineFacts

ENTRY_BYTES = 1024  # of one answer beside its numbers: key, objects, headers of arrays

Scores = tuple[SequenceScore, ...]
Compute = Callable[[ScoreRequest], Awaitable[ScoreResponse]]


@dataclass(frozen=True)
class _Unit:
    """Sequences that are looked up together."""

    key: bytes
    members: tuple[int, ...]  # places in the request


class ScoreCache:
    """Bounded by bytes, least recently used first. Belongs to one event loop."""

    def __init__(self, limit_bytes: int, facts: EngineFacts) -> None:
        self._unit = facts.cache_unit
        self._teacher = msgspec.json.encode((facts.model.id, facts.model.revision, facts.engine))
        self._kept: ByteLimited[bytes, Scores] = ByteLimited(limit_bytes, _num_bytes)
        self._running: dict[bytes, asyncio.Future[Scores]] = {}

    async def score(self, request: ScoreRequest, compute: Compute) -> ScoreResponse:
        """Answer `request`, calling `compute` once at a time for what is neither kept nor in work for another request.

        What another request was to compute and did not, because it failed or was cancelled, is computed here.
        """
        answers: dict[int, SequenceScore] = {}
        open_units = self._units(request)
        while open_units:
            own: list[_Unit] = []
            others: list[tuple[_Unit, asyncio.Future[Scores]]] = []
            for unit in open_units:
                if (kept := self._kept.get(unit.key)) is not None:
                    _answer(answers, unit, kept, "hit")
                elif (running := self._running.get(unit.key)) is not None:
                    others.append((unit, running))
                else:
                    self._running[unit.key] = asyncio.get_running_loop().create_future()
                    own.append(unit)
            if own:
                await self._compute(request, own, answers, compute)
            open_units = []
            for unit, running in others:
                await asyncio.wait({running})
                if running.cancelled():
                    open_units.append(unit)
                else:
                    _answer(answers, unit, running.result(), "shared")
        return ScoreResponse(tuple(answers[index] for index in range(len(request.sequences))))

    async def _compute(
        self, request: ScoreRequest, units: list[_Unit], answers: dict[int, SequenceScore], compute: Compute
    ) -> None:
        places = [index for unit in units for index in unit.members]
        part = msgspec.structs.replace(request, sequences=tuple(request.sequences[index] for index in places))
        try:
            response = await compute(part)
            by_place = dict(zip(places, response.sequences, strict=True))
            for unit in units:
                scores = tuple(by_place[index] for index in unit.members)
                _answer(answers, unit, scores, "miss")
                self._running[unit.key].set_result(scores)
                self._keep(unit.key, scores)
        finally:
            for unit in units:
                self._running.pop(unit.key).cancel()  # of no effect where there is a result

    def _keep(self, key: bytes, scores: Scores) -> None:
        if not any(np.isnan(score.logprobs).any() for score in scores):
            self._kept.keep(key, tuple(_own_memory(score) for score in scores))
            metrics.cache_bytes.set(self._kept.num_bytes)

    def _units(self, request: ScoreRequest) -> list[_Unit]:
        if self._unit is CacheUnit.SEQUENCE:
            members = [[index] for index in range(len(request.sequences))]
        else:
            groups: dict[bytes, list[int]] = {}
            for index, sequence in enumerate(request.sequences):
                groups.setdefault(sequence.prompt_token_ids.tobytes(), []).append(index)
            members = list(groups.values())
        return [_Unit(self._key(request, group), tuple(group)) for group in members]

    def _key(self, request: ScoreRequest, members: list[int]) -> bytes:
        """A digest of the teacher, the ids and everything that was asked."""
        digest = hashlib.sha256(self._teacher)
        digest.update(msgspec.json.encode((request.temperature, request.top_k, request.entropy)))
        for index in members:
            _add(digest, request.sequences[index])
        return digest.digest()


def _add(digest: hashlib._Hash, sequence: Sequence) -> None:
    for ids in (sequence.prompt_token_ids, sequence.response_token_ids, sequence.candidate_ids):
        # Shapes too, or ids could move from one array to the next unnoticed.
        digest.update(b"-" if ids is None else str(ids.shape).encode() + ids.tobytes())


def _answer(answers: dict[int, SequenceScore], unit: _Unit, scores: Scores, result: str) -> None:
    answers.update(zip(unit.members, scores, strict=True))
    metrics.cache_lookups.labels(result).inc(len(scores))


def _num_bytes(scores: Scores) -> int:
    return sum(ENTRY_BYTES + sum(array.nbytes for array in _arrays(score).values()) for score in scores)


def _arrays(score: SequenceScore) -> dict[str, NDArray[Any]]:
    values = ((name, getattr(score, name)) for name in score.__struct_fields__)
    return {name: value for name, value in values if value is not None}


def _own_memory(score: SequenceScore) -> SequenceScore:
    """The same numbers, holding on to nothing larger."""
    return msgspec.structs.replace(score, **{name: array.copy() for name, array in _arrays(score).items()})
