"""A real rollout worker between real services; the test plays the learner through the broker."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from transformers import AutoTokenizer

from potstill.broker import Broker
from potstill.broker.jobs import JobStore
from potstill.broker.tickets import TicketQueue
from potstill.broker.trajectories import TrajectoryStream
from potstill.contracts.arrays import TokenIds
from potstill.contracts.generation import FinishReason, PolicyRef, Sampling
from potstill.contracts.problem import Message, Problem
from potstill.contracts.scoring import ScoreRequest, Sequence
from potstill.contracts.ticket import Phase, Ticket, TicketId
from potstill.contracts.trajectory import TrajectoryGroup
from potstill.contracts.verification import Verdict
from potstill.local.stack import Stack, StackSpec, TeacherProcess
from potstill.local.threads import Threads
from potstill.service.peers import Peer
from tests.tiny_model import EOS_ID, write_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOB = "job_rollout"
DEMONSTRATION = {"prompt": "1+1?", "response": "2"}
SHOWN = "{prompt} Solution: {solution}"
slots = itertools.count()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    root = tmp_path_factory.mktemp("rollout")
    write_tiny_model(root / "student", seed=0)
    write_tiny_model(root / "teacher", seed=1)
    policy = root / "artifacts" / "jobs" / JOB / "policies" / "000000"
    write_tiny_model(policy, seed=0)
    teacher = TeacherProcess(str(root / "teacher"), "float32")
    spec = StackSpec(
        artifacts=root / "artifacts",
        student_model=str(root / "student"),
        teachers={"plain": teacher, "shown": teacher},
        threads=Threads(1, 1, 1),
    )
    with Stack(spec) as running:
        yield running


def job_spec(root: Path) -> dict[str, Any]:
    shown = {
        "kind": "demonstrations",
        "demonstrations": [DEMONSTRATION],
        "solution_template": SHOWN,
        "max_tokens": 200,
    }
    return {
        "name": "rollout",
        "student": {"model": str(root / "student")},
        "teachers": {
            "plain": {"model": str(root / "teacher")},
            "shown": {"model": str(root / "teacher"), "context": shown},
        },
        "data": {"train": "unused.jsonl"},
    }


class Learner:
    """Writes tickets and reads groups, as a learner does."""

    def __init__(self, stack: Stack, broker: Broker) -> None:
        self.root = stack.artifacts.parent
        self.broker = broker
        self.queue, self.stream = TicketQueue(broker, "default"), TrajectoryStream(broker, JOB)

    async def open_job(self) -> None:
        jobs = JobStore(self.broker)
        await jobs.create(JOB, job_spec(self.root))
        await jobs.command(JOB, "pause")  # so that the stack's own learner leaves it alone

    async def ask(
        self, problem: Problem, teacher: str | None, *, phase: Phase = Phase.TRAIN, slot: int | None = None
    ) -> TrajectoryGroup:
        """One ticket, and the group that comes of it."""
        ticket = self.ticket(problem, teacher, phase, next(slots) if slot is None else slot)
        await self.queue.issue([ticket])
        for _ in range(60):
            for received in await self.stream.new(block=500):
                await self.stream.acknowledge([received.entry])
                if received.group.ticket == ticket.id:
                    return received.group
        raise AssertionError("no group came")

    def ticket(self, problem: Problem, teacher: str | None, phase: Phase, slot: int) -> Ticket:
        policy = PolicyRef(0, (self.root / "artifacts" / "jobs" / JOB / "policies" / "000000").as_uri())
        return Ticket(
            TicketId(JOB, phase, 1, slot), problem, 3, slot, policy, Sampling(max_tokens=24), teacher, time.time()
        )


@pytest.fixture
async def learner(stack: Stack) -> AsyncIterator[Learner]:
    broker = Broker.connect(stack.redis_url, patient=False)
    playing = Learner(stack, broker)
    await playing.open_job()
    yield playing
    await broker.close()


def problem(**changes: Any) -> Problem:
    return msgspec.structs.replace(
        Problem(id="row-1", prompt=(Message("user", "2+3?"),), reference="5", solution="2+3=5"), **changes
    )


def rendered(root: Path, *turns: tuple[str, str]) -> TokenIds:
    tokenizer = AutoTokenizer.from_pretrained(root / "student")
    messages = [{"role": role, "content": content} for role, content in turns]
    return TokenIds.of(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))


async def test_a_group_holds_all_that_an_objective_needs(learner: Learner) -> None:
    group = await learner.ask(problem(), "plain")
    assert group.tombstone is None
    assert group.prompt_token_ids.tolist() == rendered(learner.root, ("user", "2+3?")).tolist()
    assert len(group.trajectories) == 3
    for sample in group.trajectories:
        length = len(sample.token_ids)
        assert len(sample.behaviour_logprobs) == length
        assert sample.teacher_logprobs is not None
        assert len(sample.teacher_logprobs) == length
        assert np.isfinite(sample.teacher_logprobs).all()
        assert (sample.token_ids[-1] == EOS_ID) == (sample.finish_reason is FinishReason.STOP)
        assert sample.verdict in (Verdict.ACCEPTED, Verdict.WRONG_ANSWER)
        assert sample.score in (0.0, 1.0)
    assert len({tuple(sample.token_ids.tolist()) for sample in group.trajectories}) == 3, "samples differ"


async def test_what_is_handed_in_is_not_counted_as_aborted(stack: Stack, learner: Learner) -> None:
    waiting = [learner.ticket(problem(), "plain", Phase.TRAIN, next(slots)) for _ in range(200)]
    await learner.queue.issue(waiting)
    missing = {ticket.id for ticket in waiting}
    while missing:
        received = await learner.stream.new(block=500)
        await learner.stream.acknowledge([each.entry for each in received])
        missing -= {each.group.ticket for each in received}
    lines = httpx.get(f"{stack.urls['rollout-0']}/metrics").text.splitlines()
    assert 'potstill_rollout_tickets_total{outcome="aborted",phase="train"} 0.0' in lines


async def test_a_teacher_scores_the_sampled_ids_in_its_own_context(stack: Stack, learner: Learner) -> None:
    group = await learner.ask(problem(), "shown")
    context = rendered(learner.root, ("user", "1+1?"), ("assistant", "2"), ("user", "2+3? Solution: 2+3=5"))
    teacher = Peer(stack._url("teacher-plain"), stack.token)
    for sample in group.trajectories:
        request = ScoreRequest((Sequence(context, sample.token_ids),))
        (expected,) = (await teacher.score(request)).sequences
        assert sample.teacher_logprobs is not None
        np.testing.assert_allclose(sample.teacher_logprobs, expected.logprobs, atol=1e-4)
    await teacher.close()


async def test_an_eval_ticket_asks_no_teacher(learner: Learner) -> None:
    group = await learner.ask(problem(), None, phase=Phase.EVAL)
    assert [sample.teacher_logprobs for sample in group.trajectories] == [None] * 3
    assert all(sample.score is not None for sample in group.trajectories)


@pytest.mark.parametrize(
    ("changes", "teacher", "reason", "counted"),
    [
        ({"solution": None}, "shown", "has no solution", "no_solution"),
        ({"solution": "x" * 300}, "shown", "more than its context.max_tokens of 200", "too_long"),
        ({}, "nobody", "knows no teacher nobody", "teacher_unknown"),
        ({"kind": "telepathy"}, "plain", "telepathy", "refused"),
    ],
)
async def test_a_ticket_that_cannot_be_fulfilled_becomes_a_tombstone_that_is_counted(
    stack: Stack, learner: Learner, changes: dict[str, Any], teacher: str, reason: str, counted: str
) -> None:
    group = await learner.ask(problem(**changes), teacher)
    lines = httpx.get(f"{stack._url('rollout-0')}/metrics").text.splitlines()
    assert f'potstill_rollout_tombstones_total{{phase="train",reason="{counted}"}} 1.0' in lines
    assert group.trajectories == ()
    assert group.tombstone is not None
    assert reason in group.tombstone


async def test_the_same_ticket_gives_the_same_samples(learner: Learner) -> None:
    first = await learner.ask(problem(), "plain")
    await learner.stream.discard()  # as if the queue had lost what it held
    again = await learner.ask(problem(), "plain", slot=first.ticket.slot)
    for one, other in zip(first.trajectories, again.trajectories, strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert one.behaviour_logprobs.tolist() == other.behaviour_logprobs.tolist()
        assert one.teacher_logprobs is not None
        assert other.teacher_logprobs is not None
        assert one.teacher_logprobs.tolist() == other.teacher_logprobs.tolist()
