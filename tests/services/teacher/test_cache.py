"""Kept answers: the same numbers, bounded, and shared by those who ask at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pytest

from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.capabilities import EngineInfo, ModelInfo
from potstill.contracts.scoring import ScoreRequest, ScoreResponse, Sequence, SequenceScore
from services.teacher.cache import ENTRY_BYTES, ScoreCache
from services.teacher.engine import CacheUnit, EngineFacts, Feature
from tests.services.teacher import reference

MODEL = ModelInfo("m", "local", reference.VOCAB_SIZE, "sha256:0", (2,), 512)
ROOMY = 2**20


def _facts(unit: CacheUnit = CacheUnit.SEQUENCE) -> EngineFacts:
    return EngineFacts(MODEL, EngineInfo("e", "1", "float32"), frozenset(Feature), 4, 1, unit)


class Engine:
    """Answers with numbers that follow from the ids and the temperature, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Sequence] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = 0

    async def compute(self, request: ScoreRequest) -> ScoreResponse:
        self.asked += request.sequences
        await self.gate.wait()
        if self.fails:
            self.fails -= 1
            raise RuntimeError("out of luck")
        return ScoreResponse(tuple(_score(sequence, request.temperature) for sequence in request.sequences))


def _score(sequence: Sequence, temperature: float = 1.0) -> SequenceScore:
    return SequenceScore(
        LogProbs.of(np.asarray(sequence.response_token_ids) * -temperature - len(sequence.prompt_token_ids))
    )


def _same(response: ScoreResponse, request: ScoreRequest) -> bool:
    expected = (_score(sequence, request.temperature) for sequence in request.sequences)
    return all(np.array_equal(a.logprobs, b.logprobs) for a, b in zip(response.sequences, expected, strict=True))


GROUP = ScoreRequest(reference.group(1, 6, [4, 5, 6]))
CUT = (5, 6, 7)


async def test_what_was_asked_before_is_not_computed_again() -> None:
    engine, cache = Engine(), ScoreCache(ROOMY, _facts())
    for _ in range(2):
        assert _same(await cache.score(GROUP, engine.compute), GROUP)
    assert len(engine.asked) == 3


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 0.5},
        {"top_k": 1},
        {"entropy": True},
        {"sequences": (Sequence(GROUP.sequences[0].prompt_token_ids, TokenIds.of([5, 6])),)},
        # The same ids, cut elsewhere.
        {
            "sequences": (
                Sequence(TokenIds.of([5]), TokenIds.of([6, 7])),
                Sequence(TokenIds.of([5, 6]), TokenIds.of([7])),
            )
        },
        {"sequences": (msgspec.structs.replace(GROUP.sequences[0], candidate_ids=TokenIds.of([[1]] * 4)),)},
    ],
)
async def test_another_question_is_computed(changed: dict[str, object]) -> None:
    engine, cache = Engine(), ScoreCache(ROOMY, _facts())
    await cache.score(GROUP, engine.compute)
    other = msgspec.structs.replace(GROUP, **changed)
    assert _same(await cache.score(other, engine.compute), other)
    assert len(engine.asked) == 3 + len(other.sequences)


async def test_only_what_is_missing_is_computed_and_the_order_is_kept() -> None:
    engine, cache = Engine(), ScoreCache(ROOMY, _facts())
    a, b, c = GROUP.sequences
    await cache.score(ScoreRequest((b,)), engine.compute)
    mixed = ScoreRequest((c, b, a, c))
    assert _same(await cache.score(mixed, engine.compute), mixed)
    assert engine.asked == [b, c, a]


async def test_a_group_is_kept_as_a_whole_where_its_last_bits_depend_on_its_members() -> None:
    engine, cache = Engine(), ScoreCache(ROOMY, _facts(CacheUnit.GROUP))
    a, b, c = GROUP.sequences
    (other,) = reference.group(2, 7, [3])
    await cache.score(ScoreRequest((a, b)), engine.compute)
    mixed = ScoreRequest((a, other, b))
    assert _same(await cache.score(mixed, engine.compute), mixed)
    assert engine.asked == [a, b, other]
    await cache.score(ScoreRequest((a, b, c)), engine.compute)
    assert engine.asked == [a, b, other, a, b, c]


async def test_memory_is_bounded_and_an_evicted_answer_is_right_again() -> None:
    engine = Engine()
    requests = [ScoreRequest(reference.group(seed, 5, [8])) for seed in range(10)]
    cache = ScoreCache(3 * (ENTRY_BYTES + 8 * 4), _facts())
    for request in [*requests, *reversed(requests)]:
        assert _same(await cache.score(request, engine.compute), request)
    assert cache._kept.num_bytes <= cache._kept.limit_bytes
    assert len(cache._kept) == 3
    assert len(engine.asked) == 10 + 7
    nothing_fits = ScoreCache(0, _facts())
    for _ in range(2):
        assert _same(await nothing_fits.score(GROUP, engine.compute), GROUP)


async def test_a_kept_answer_holds_on_to_nothing_larger() -> None:
    whole = np.zeros(10_000, dtype=np.float32)

    async def compute(request: ScoreRequest) -> ScoreResponse:
        return ScoreResponse(tuple(SequenceScore(whole[:4].view(LogProbs)) for _ in request.sequences))

    cache = ScoreCache(ROOMY, _facts())
    one = ScoreRequest(GROUP.sequences[:1])
    await cache.score(one, compute)
    (score,) = (await cache.score(one, compute)).sequences
    assert score.logprobs.base is None


async def test_those_who_ask_at_the_same_time_share_one_computation() -> None:
    engine, cache = Engine(), ScoreCache(ROOMY, _facts())
    engine.gate.clear()
    asking = [asyncio.create_task(cache.score(GROUP, engine.compute)) for _ in range(5)]
    await asyncio.sleep(0.01)
    engine.gate.set()
    assert all(_same(response, GROUP) for response in await asyncio.gather(*asking))
    assert len(engine.asked) == 3


async def test_two_who_wait_for_each_other_both_end() -> None:
    engine, cache = Engine(), ScoreCache(ROOMY, _facts())
    a, b, _ = GROUP.sequences
    engine.gate.clear()
    asking = [
        asyncio.create_task(cache.score(ScoreRequest(order), engine.compute)) for order in ((a,), (b,), (a, b), (b, a))
    ]
    await asyncio.sleep(0.01)
    engine.gate.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*asking)
    assert engine.asked == [a, b]


@pytest.mark.parametrize("trouble", ["cancelled", "failed"])
async def test_who_waited_for_one_that_came_to_nothing_computes_it(trouble: str) -> None:
    engine, cache = Engine(), ScoreCache(ROOMY, _facts())
    engine.gate.clear()
    first, second = (asyncio.create_task(cache.score(GROUP, engine.compute)) for _ in range(2))
    await asyncio.sleep(0.01)
    if trouble == "cancelled":
        first.cancel()
    else:
        engine.fails = 1
    engine.gate.set()
    with pytest.raises((asyncio.CancelledError, RuntimeError)):
        await first
    assert _same(await second, GROUP)
    assert len(engine.asked) == 6


async def test_a_missing_value_is_not_kept() -> None:
    async def compute(request: ScoreRequest) -> ScoreResponse:
        return ScoreResponse((SequenceScore(LogProbs.of([-1.0, None])),))

    engine, cache = Engine(), ScoreCache(ROOMY, _facts())
    one = ScoreRequest(GROUP.sequences[:1])
    await cache.score(one, compute)
    assert _same(await cache.score(one, engine.compute), one)


def test_a_teacher_counts_what_it_had_kept(model: Path, other_teacher) -> None:
    name = 'potstill_teacher_score_cache_sequences_total{{result="{}"}}'.format
    with other_teacher(model) as teacher:
        hits, misses = teacher.metric(name("hit")), teacher.metric(name("miss"))
        answers = [teacher.score(GROUP) for _ in range(2)]
        assert (teacher.metric(name("hit")) - hits, teacher.metric(name("miss")) - misses) == (3, 3)
        assert teacher.metric("potstill_teacher_score_cache_bytes") > 3 * ENTRY_BYTES
    assert msgspec.msgpack.encode([a.logprobs.tolist() for a in answers[0].sequences]) == msgspec.msgpack.encode(
        [a.logprobs.tolist() for a in answers[1].sequences]
    )
