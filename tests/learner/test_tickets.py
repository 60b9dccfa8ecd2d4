from __future__ import annotations

from collections import Counter

import pytest

from learner.tickets import TicketWriter, check_teachers, epoch_order, sampled_policy
from potstill.contracts.generation import PolicyRef
from potstill.contracts.job import JobSpec
from potstill.contracts.problem import Message, Problem

POLICY = PolicyRef(0, "file:///policies/000000")


def problems(count: int, teacher: str | None = None) -> list[Problem]:
    return [
        Problem(id=f"p{i}", prompt=(Message("user", str(i)),), reference="1", teacher=teacher) for i in range(count)
    ]


def job(*, seed: int = 0, prompts: int = 4, teachers: tuple[str, ...] = ("maths",), **extra: object) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "t",
            "seed": seed,
            "student": {"model": "m"},
            "teachers": {name: {"model": "t"} for name in teachers},
            "data": {"train": "t.jsonl"},
            "training": {"prompts_per_step": prompts},
            **extra,
        }
    )


def writer(spec: JobSpec, count: int = 10) -> TicketWriter:
    return TicketWriter("job_a", spec, problems(count), problems(5))


def test_every_problem_comes_once_an_epoch_and_epochs_differ() -> None:
    tickets = [t for step in range(1, 6) for t in writer(job()).training(step, POLICY)]  # 20 tickets: two epochs of 10
    first, second = ([t.problem.id for t in half] for half in (tickets[:10], tickets[10:]))
    assert sorted(first) == sorted(second) == [f"p{i}" for i in range(10)]
    assert first != second


def test_more_prompts_a_step_than_problems_go_round() -> None:
    counts = Counter(t.problem.id for t in writer(job(prompts=25)).training(1, POLICY))
    assert set(counts.values()) == {2, 3}


def test_the_order_is_the_seeds_and_nothing_elses() -> None:
    assert epoch_order(7, 0, 8) == (6, 4, 2, 1, 5, 7, 3, 0)  # for ever: a change would reorder jobs under way
    assert epoch_order(7, 0, 50) != epoch_order(8, 0, 50)


def test_tickets_are_the_same_whenever_they_are_written_and_no_two_share_a_seed() -> None:
    spec = job()

    def facts() -> list[tuple[object, ...]]:
        made = [t for step in (1, 2, 3) for t in writer(spec).training(step, POLICY)]
        made += [t for step in (0, 1) for t in writer(spec).evaluation(step, POLICY)]
        return [(t.id, t.problem.id, t.seed, t.n, t.sampling, t.teacher) for t in made]

    assert facts() == facts()
    seeds = [seed for _, _, seed, *_ in facts()]
    assert len(set(seeds)) == len(seeds)


def test_eval_tickets_ask_the_same_problems_every_time_and_no_teacher() -> None:
    spec = job(eval={"n": 2, "temperature": 0.0, "max_problems": 3}, sampling={"n": 4, "max_tokens": 9})
    before, after = (writer(spec).evaluation(step, POLICY) for step in (0, 10))
    assert [t.problem.id for t in before] == [t.problem.id for t in after] == ["p0", "p1", "p2"]
    assert {(t.teacher, t.n, t.sampling.temperature, t.sampling.max_tokens) for t in before} == {(None, 2, 0.0, 9)}
    assert writer(spec).num_heldout == 3


@pytest.mark.parametrize(("step", "staleness", "version"), [(1, 0, 0), (5, 0, 4), (1, 1, 0), (2, 1, 0), (5, 1, 3)])
def test_the_oldest_policy_of_a_step(step: int, staleness: int, version: int) -> None:
    assert sampled_policy(step, staleness) == version


def test_rows_must_name_a_teacher_of_the_job() -> None:
    two = job(teachers=("maths", "code"))
    assert "names no teacher" in str(check_teachers(two, problems(1)))
    assert "'chess'" in str(check_teachers(two, problems(1, "chess")))
    assert check_teachers(two, problems(1, "code")) is None
    assert check_teachers(job(), problems(1)) is None
    assert writer(job()).training(1, POLICY)[0].teacher == "maths"


def test_evaluation_samples_as_its_own_section_says_and_training_never_has_a_nucleus() -> None:
    spec = job(eval={"n": 8, "temperature": 0.7, "top_p": 0.95, "max_tokens": 99, "max_problems": 3})
    evaluated, trained = writer(spec).evaluation(4, POLICY), writer(spec).training(1, POLICY)
    assert [(t.n, t.sampling.temperature, t.sampling.top_p, t.sampling.max_tokens) for t in evaluated] == [
        (8, 0.7, 0.95, 99)
    ] * 3
    assert {(t.sampling.top_p, t.sampling.max_tokens) for t in trained} == {(1.0, 64)}
    (default, *_) = writer(job()).evaluation(0, POLICY)
    assert (default.sampling.top_p, default.sampling.max_tokens) == (1.0, 64)
