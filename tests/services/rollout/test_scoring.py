"""Who is asked what about a sample, and what becomes of the answers: real services, tiny models."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import numpy as np
import pytest

from potstill.contracts.arrays import TokenIds
from potstill.contracts.generation import GenerateRequest, Prompt
from potstill.contracts.problem import Message
from potstill.contracts.scoring import ScoreRequest, Sequence
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup
from services.rollout.errors import Reason, TicketError
from services.rollout.rollout import roll_out
from tests.services.rollout.bed import NUM_IDS, NUM_SAMPLES, VOCAB_SIZE, Bed, tokenizer

TOLERANCE = 1e-4
TOP_K = 6
SOLUTION = {"kind": "solution", "template": "{solution}{prompt}"}
ROUTES = ["one", "two", "two", "one", "one", "two", "one", "one"]


def routed(bed: Bed) -> dict[str, object]:
    """ExOPD with two teachers; λ of the second is 1, so its rows need no reference although it has one."""
    return {
        "teachers": {
            "one": bed.teacher("one", reference="start", **{"lambda": 1.5}),
            "two": bed.teacher("two", reference="start", **{"lambda": 1.0}),
            "start": bed.teacher("start"),
        },
        "objective": {"preset": "exopd"},
    }


async def roll_all(bed: Bed, routes: list[tuple[int, str]], **changes: object) -> dict[int, TrajectoryGroup]:
    renderer = bed.renderer(**changes)
    async with bed.peers() as peers:
        groups = await asyncio.gather(
            *(roll_out(bed.ticket(slot, name, solution="dd"), renderer, peers, "w") for slot, name in routes)
        )
    return {group.ticket.slot: group for group in groups}


async def roll(bed: Bed, teacher: str | None = "one", **changes: object) -> tuple[Trajectory, ...]:
    async with bed.peers() as peers:
        return (await roll_out(bed.ticket(0, teacher, solution="dd"), bed.renderer(**changes), peers, "w")).trajectories


def rows_of(bed: Bed, name: str, prompt: str, sample: Trajectory) -> np.ndarray:
    """The teacher's log-probabilities [T, V] of everything that the student may write, its padding included."""
    ids = TokenIds.of(tokenizer()(prompt)["input_ids"])
    everything = np.tile(np.arange(VOCAB_SIZE), (len(sample.token_ids), 1))
    request = ScoreRequest((Sequence(ids, sample.token_ids, TokenIds.of(everything)),))
    (score,) = bed.teachers[name].score(request).sequences
    return np.asarray(score.candidate_logprobs)


class TestRouting:
    async def test_each_row_is_scored_by_its_own_teacher_and_reference_alone(self, bed: Bed) -> None:
        before = bed.requests()
        await roll_all(bed, list(enumerate(ROUTES)), **routed(bed))
        asked, rows = bed.requests() - before, Counter(ROUTES)
        # `start` is the reference of both, and λ of the second is 1.
        assert asked == {"one": rows["one"], "two": rows["two"], "start": rows["one"]}

    async def test_the_order_of_rows_does_not_matter(self, bed: Bed) -> None:
        routes = list(enumerate(ROUTES))
        first = await roll_all(bed, routes, **routed(bed))
        random.Random(0).shuffle(routes)
        other = await roll_all(bed, routes, **routed(bed))
        assert first.keys() == other.keys()
        for slot, group in first.items():
            assert group.teacher == ROUTES[slot]
            for one, two in zip(group.trajectories, other[slot].trajectories, strict=True):
                assert one.token_ids.tolist() == two.token_ids.tolist()
                assert one.teacher_logprobs is not None
                np.testing.assert_allclose(one.teacher_logprobs, two.teacher_logprobs, atol=TOLERANCE)
                assert (one.reference_logprobs is None) == (ROUTES[slot] == "two")

    async def test_an_objective_without_a_reference_asks_for_none(self, bed: Bed) -> None:
        before = bed.requests()
        teachers = {"one": bed.teacher("one", reference="start"), "start": bed.teacher("start")}
        samples = await roll(bed, teachers=teachers)
        assert [sample.reference_logprobs for sample in samples] == [None] * NUM_SAMPLES
        assert bed.requests() - before == {"one": 1}

    async def test_a_reference_that_is_the_student_says_what_the_student_says(self, bed: Bed) -> None:
        for sample in await roll(bed, **routed(bed)):
            np.testing.assert_allclose(sample.reference_logprobs, sample.behaviour_logprobs, atol=1e-3)

    async def test_a_reference_reads_its_own_context(self, bed: Bed) -> None:
        job = routed(bed)
        job["teachers"] |= {"start": bed.teacher("start", context=SOLUTION)}  # type: ignore[operator]
        for sample in await roll(bed, **job):
            chosen = np.asarray(sample.token_ids)[:, None]
            shown = np.take_along_axis(rows_of(bed, "start", "dd" + "abcda", sample), chosen, 1)[:, 0]
            plain = np.take_along_axis(rows_of(bed, "one", "abcda", sample), chosen, 1)[:, 0]
            np.testing.assert_allclose(sample.reference_logprobs, shown, atol=TOLERANCE)
            np.testing.assert_allclose(sample.teacher_logprobs, plain, atol=TOLERANCE)


class TestIds:
    async def test_the_sampled_ids_reach_teacher_and_learner_as_they_are(self, bed: Bed) -> None:
        samples = await roll(bed)
        read_again = [tokenizer()(sample.text)["input_ids"] for sample in samples]
        assert any(
            [token for token in sample.token_ids.tolist() if token > 1] != again
            for sample, again in zip(samples, read_again, strict=True)
        ), "reading the text again would give the same ids, so this shows nothing"
        async with bed.peers() as peers:
            prompt = TokenIds.of(tokenizer()("abcda")["input_ids"])
            ticket = bed.ticket(0, "one")
            request = GenerateRequest((Prompt(prompt, NUM_SAMPLES, 0),), ticket.sampling, ticket.policy)
            (generated,) = (await peers.student.generate(request)).prompts
        for sample, drawn in zip(samples, generated.samples, strict=True):
            assert sample.token_ids.tolist() == drawn.token_ids.tolist()
            scored = ScoreRequest((Sequence(prompt, drawn.token_ids),))
            (score,) = bed.teachers["one"].score(scored).sequences
            np.testing.assert_allclose(sample.teacher_logprobs, score.logprobs, atol=TOLERANCE)


class TestCandidates:
    @pytest.mark.parametrize("teacher", ["one", "two"])
    @pytest.mark.parametrize(("named_by", "width"), [("student", TOP_K), ("teacher", TOP_K), ("union", 2 * TOP_K)])
    async def test_they_are_the_likeliest_tokens_with_the_teachers_values(
        self, bed: Bed, teacher: str, named_by: str, width: int
    ) -> None:
        objective = {"preset": "topk-opd", "candidates": named_by, "top_k": TOP_K}
        samples = await roll(bed, teacher, objective=objective, teachers={teacher: bed.teacher(teacher)})
        for sample in samples:
            assert sample.candidate_ids is not None
            assert sample.candidate_teacher_logprobs is not None
            ids, values = np.asarray(sample.candidate_ids), np.asarray(sample.candidate_teacher_logprobs)
            assert ids.shape == values.shape == (len(sample.token_ids), width)
            theirs, mine = (rows_of(bed, name, "abcda", sample)[:, :NUM_IDS] for name in (teacher, "start"))
            for position in range(len(ids)):
                found = ids[position][ids[position] != -1].tolist()
                assert ids[position].tolist() == found + [-1] * (width - len(found)), "what is missing comes last"
                assert len(found) == len(set(found)) >= width // 2 - 2
                assert set(found) == likely(named_by, mine[position], theirs[position], found)
                np.testing.assert_allclose(values[position][: len(found)], theirs[position][found], atol=TOLERANCE)
            assert (ids < NUM_IDS).all(), "padding of the vocabulary is no candidate"
            assert (np.isnan(values) == (ids == -1)).all()

    async def test_an_evaluation_asks_for_none(self, bed: Bed) -> None:
        samples = await roll(bed, None, objective={"preset": "topk-opd"})
        assert [sample.candidate_ids for sample in samples] == [None] * NUM_SAMPLES

    async def test_a_policy_gradient_carries_none(self, bed: Bed) -> None:
        assert [sample.candidate_ids for sample in await roll(bed)] == [None] * NUM_SAMPLES


class TestLength:
    async def test_a_prompt_above_its_limit_drops_the_row(self, bed: Bed) -> None:
        with pytest.raises(TicketError, match=r"sampling\.max_prompt_tokens = 2") as caught:
            await roll(bed, sampling={"max_prompt_tokens": 2})
        assert caught.value.reason is Reason.TOO_LONG
        with pytest.raises(TicketError, match=r"context\.max_tokens of 2"):
            await roll(bed, teachers={"one": bed.teacher("one", context={"kind": "plain", "max_tokens": 2})})

    @pytest.mark.parametrize("long", ["prompt", "solution"])
    async def test_one_that_a_service_cannot_take_is_not_asked_again(self, bed: Bed, long: str) -> None:
        text = "<pad>" * 120
        changed = {"prompt": (Message("user", text),)} if long == "prompt" else {"solution": text}
        teachers = {"one": bed.teacher("one", context=SOLUTION)}
        async with bed.peers() as peers:
            ticket = bed.ticket(0, "one", **({"solution": "a"} | changed))
            with pytest.raises(TicketError, match="does not fit") as caught:
                await roll_out(ticket, bed.renderer(teachers=teachers), peers, "w")
        assert caught.value.reason is Reason.TOO_LONG


def likely(named_by: str, mine: np.ndarray, theirs: np.ndarray, found: list[int]) -> set[int]:
    """The most likely ids of each side that names them, as many as are left where padding was among them."""
    sides = [row for row, side in ((mine, "student"), (theirs, "teacher")) if named_by in (side, "union")]
    ranked = [np.argsort(-row).tolist() for row in sides]
    sizes = [next(size for size in range(TOP_K, -1, -1) if set(ids[:size]) <= set(found)) for ids in ranked]
    return set().union(*(ids[:size] for ids, size in zip(ranked, sizes, strict=True)))
