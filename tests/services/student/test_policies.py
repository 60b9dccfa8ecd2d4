"""Policies over real HTTP: which weights answer, when they are swapped, and what happens when they cannot be."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from potstill.contracts.generation import PolicyRef
from tests.services.student.students import (
    RunningStudent,
    assert_drawn_from,
    load_adapted,
    load_full,
    policy_folder,
    prompt,
    publish,
    publish_adapter,
    wait_until,
)
from tests.tiny_model import write_tiny_model


def test_the_named_policy_answers(student: RunningStudent) -> None:
    policy = publish(student.artifacts, 3, seed=33)
    drawn = student.sample(policy)
    assert drawn.policy_version == 3
    assert_drawn_from(load_full(policy), drawn)
    assert student.metric("potstill_student_policy_version") == 3


def test_a_newer_policy_of_the_same_job_answers_too(student: RunningStudent) -> None:
    older, newer = publish(student.artifacts, 3, seed=33), publish(student.artifacts, 4, seed=44)
    student.sample(newer)
    assert student.sample(older).policy_version == 4
    assert student.sample().policy_version == 4


def test_an_older_version_of_another_job_is_loaded(student: RunningStudent) -> None:
    student.sample(publish(student.artifacts, 9, seed=1, job="job_a"))
    policy = publish(student.artifacts, 2, seed=2, job="job_b")
    drawn = student.sample(policy)
    assert drawn.policy_version == 2
    assert_drawn_from(load_full(policy), drawn)


def test_sixteen_requests_at_once_load_once(student: RunningStudent) -> None:
    policy = publish(student.artifacts, 5, seed=55)
    loads = student.metric("potstill_student_policy_swaps_total")
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        drawn = list(pool.map(lambda _: student.sample(policy), range(16)))
    assert {item.policy_version for item in drawn} == {5}
    assert len({item.logprobs.tobytes() for item in drawn}) == 1
    assert student.metric("potstill_student_policy_swaps_total") == loads + 1


def test_samples_in_flight_finish_under_their_own_weights(student: RunningStudent) -> None:
    """And the probes are answered while the swap waits for them."""
    policy = publish(student.artifacts, 1, seed=11)
    alone = student.generate(prompt(1, n=64), max_tokens=200)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        in_flight = pool.submit(student.generate, prompt(1, n=64), max_tokens=200)
        wait_until(lambda: student.metric("potstill_student_samples_running") > 0)
        swapping = pool.submit(student.sample, policy)
        time.sleep(0.05)
        begun = time.monotonic()
        assert student.client.get("/livez").is_success
        assert time.monotonic() - begun < 2
        assert not in_flight.done()
        assert swapping.result().policy_version == 1
        assert in_flight.done()
    for left, right in zip(alone.prompts[0].samples, in_flight.result().prompts[0].samples, strict=True):
        assert right.policy_version == 0
        assert left.logprobs.tobytes() == right.logprobs.tobytes()


@pytest.mark.parametrize("uri", ["https://example.org/p", "file://elsewhere/p", "/etc", "file:///etc", "file:///", ""])
def test_uris_outside_the_artifacts_are_refused(student: RunningStudent, uri: str) -> None:
    assert student.refusal(PolicyRef(1, uri))[:2] == (422, "outside_artifacts")


def test_links_and_dots_do_not_lead_outside_the_artifacts(student: RunningStudent, tmp_path: Path) -> None:
    outside = write_tiny_model(tmp_path / "outside", seed=6)
    jobs = student.artifacts / "jobs"
    jobs.mkdir(parents=True)
    (jobs / "link").symlink_to(outside)
    dotted = f"file://{student.artifacts}/jobs/../../outside"
    assert student.refusal(PolicyRef(1, (jobs / "link").as_uri()))[:2] == (422, "outside_artifacts")
    assert student.refusal(PolicyRef(1, dotted))[:2] == (422, "outside_artifacts")
    inside = jobs / "job_a" / "policies" / "000001"
    inside.mkdir(parents=True)
    (inside / "model.safetensors").symlink_to(outside / "model.safetensors")
    assert student.refusal(PolicyRef(1, inside.as_uri()))[:2] == (502, "policy_load_failed")


def cut_off(weights: Path) -> None:
    weights.write_bytes(weights.read_bytes()[:-1000])


def reshape(weights: Path) -> None:
    tensors = load_file(weights)
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()
    save_file(tensors, weights)


def rename(weights: Path) -> None:
    tensors = load_file(weights)
    tensors["model.renamed.weight"] = tensors.pop("model.norm.weight")
    save_file(tensors, weights)


def delete(weights: Path) -> None:
    weights.unlink()


def garble(weights: Path) -> None:
    weights.write_bytes(b"not a safetensors file")


@pytest.mark.parametrize("damage", [cut_off, reshape, rename, delete, garble])
def test_a_policy_that_cannot_be_loaded_leaves_the_old_one_serving(
    student: RunningStudent, damage: Callable[[Path], None]
) -> None:
    good = publish(student.artifacts, 1, seed=11)
    before = student.sample(good)
    bad = publish(student.artifacts, 2, seed=22)
    damage(policy_folder(bad) / "model.safetensors")
    status, code, detail = student.refusal(bad)
    assert (status, code) == (502, "policy_load_failed")
    assert "policy 2 " in detail
    assert "policy 1 " in detail
    after = student.sample(good)
    assert after.policy_version == 1
    assert before.logprobs.tobytes() == after.logprobs.tobytes()
    publish(student.artifacts, 2, seed=22)
    assert student.sample(bad).policy_version == 2


def test_weights_that_give_no_numbers_are_an_error_and_leave_no_trace(student: RunningStudent) -> None:
    before = student.sample(publish(student.artifacts, 1, seed=11))
    broken = publish(student.artifacts, 2, seed=22)
    weights = policy_folder(broken) / "model.safetensors"
    tensors = load_file(weights)
    tensors["model.norm.weight"][:] = float("nan")
    save_file(tensors, weights)
    assert student.refusal(broken)[:2] == (500, "non_finite_logits")
    after = student.sample(publish(student.artifacts, 3, seed=11))
    assert before.logprobs.tobytes() == after.logprobs.tobytes()


def test_adapters_follow_each_other(student: RunningStudent, tiny_model: Path) -> None:
    for version in (1, 2, 3):
        policy = publish_adapter(student.artifacts, tiny_model, version)
        drawn = student.sample(policy)
        assert drawn.policy_version == version
        assert_drawn_from(load_adapted(tiny_model, policy), drawn)


def test_adapters_and_full_weights_take_turns(student: RunningStudent, tiny_model: Path) -> None:
    """An adapter belongs to the initial weights, not to those that another job left behind."""
    adapter = publish_adapter(student.artifacts, tiny_model, 1)
    full = publish(student.artifacts, 1, seed=11)
    for _ in range(2):
        assert_drawn_from(load_adapted(tiny_model, adapter), student.sample(adapter))
        assert_drawn_from(load_full(full), student.sample(full))


@pytest.mark.parametrize("first", ["adapter", "full", None])
def test_an_adapter_that_does_not_fit_leaves_the_old_weights_serving(
    student: RunningStudent, tiny_model: Path, tmp_path: Path, first: str | None
) -> None:
    good = None
    if first == "adapter":
        good = publish_adapter(student.artifacts, tiny_model, 1)
    elif first == "full":
        good = publish(student.artifacts, 1, seed=11)
    before = student.sample(good)
    wider = write_tiny_model(tmp_path / "wider", hidden=96)
    assert student.refusal(publish_adapter(student.artifacts, wider, 2))[0] == 502
    assert student.refusal(publish_adapter(student.artifacts, tiny_model, 3, rank=65))[0] == 502
    assert student.sample(good).logprobs.tobytes() == before.logprobs.tobytes()
