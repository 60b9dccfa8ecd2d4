"""The vLLM engine against a transformers forward: same numbers, whatever is asked and however it is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from potstill.contracts.arrays import TokenIds
from potstill.contracts.scoring import ScoreRequest, Sequence
from tests.services.teacher import reference
from tests.services.teacher.conftest import TeacherClient, teacher

pytest.importorskip("vllm")
from services.teacher.vllm_engine import STEP_TOKENS

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

TOLERANCE = 1e-3
SEQUENCES = reference.group(1, 20, [9, 1, 30, 2]) + reference.group(2, 300, [5, 17, 150]) + reference.group(3, 1, [4])


@pytest.fixture(scope="module")
def vllm(model: Path) -> Iterator[TeacherClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        with teacher(model, teacher_engine="vllm") as client:
            yield client


def _assert_exact(vllm: TeacherClient, model: Path, sequences: tuple[Sequence, ...]) -> None:
    for sequence, score in zip(sequences, vllm.score(ScoreRequest(sequences)).sequences, strict=True):
        np.testing.assert_allclose(score.logprobs, reference.logprobs(model, sequence), atol=TOLERANCE, rtol=0)


def test_every_response_token_has_the_models_own_value_first_and_eos_included(vllm: TeacherClient, model: Path) -> None:
    _assert_exact(vllm, model, SEQUENCES)


@pytest.mark.parametrize("prompt_length", [300, 320])  # with blocks of 32, the second fills its last one
def test_a_group_reads_its_prompt_once(vllm: TeacherClient, model: Path, prompt_length: int) -> None:
    computed = 'potstill_teacher_tokens_total{kind="prompt_computed"}'
    before = vllm.metric(computed)
    _assert_exact(vllm, model, reference.group(prompt_length, prompt_length, [20] * 8))
    rest = prompt_length % 32
    assert vllm.metric(computed) - before == prompt_length + 7 * rest


def test_a_prompt_is_shared_between_requests(vllm: TeacherClient, model: Path) -> None:
    reused = 'potstill_teacher_tokens_total{kind="prompt_reused"}'
    before = vllm.metric(reused)
    sequences = reference.group(7, 300, [20, 20])
    _assert_exact(vllm, model, sequences[:1])
    assert vllm.metric(reused) == before
    _assert_exact(vllm, model, sequences[1:])
    assert vllm.metric(reused) - before >= 128


def test_positions_that_the_prefix_cache_leaves_out_are_scored(vllm: TeacherClient, model: Path) -> None:
    (long,) = reference.group(8, 20, [400])
    _assert_exact(vllm, model, (long,))
    expected = reference.logprobs(model, long)
    (again,) = vllm.score(ScoreRequest((long,), entropy=True)).sequences  # another question, so not a kept answer
    np.testing.assert_allclose(again.logprobs, expected, atol=TOLERANCE, rtol=0)
    # The same ids cut elsewhere: the hidden states of these positions were kept for another cut.
    ids = np.concatenate([long.prompt_token_ids, long.response_token_ids])
    _assert_exact(vllm, model, (Sequence(TokenIds.of(ids[:120]), TokenIds.of(ids[120:])),))


def test_top_k_with_the_token_inside_and_outside(vllm: TeacherClient, model: Path) -> None:
    prompt = reference.ids(5, 20)
    likely = reference.greedy(model, prompt, 10)
    plain = Sequence(prompt, TokenIds.of([*likely, *reference.ids(6, 20)]))
    rows = reference.distribution(model, plain)
    order = np.argsort(-rows, axis=-1)[:, :4]
    is_inside = (order == np.asarray(plain.response_token_ids)[:, None]).any(-1)
    assert is_inside.any()
    assert not is_inside.all()
    (score,) = vllm.score(ScoreRequest((plain,), top_k=4)).sequences
    top = np.take_along_axis(rows, order, -1)
    np.testing.assert_allclose(score.logprobs, reference.logprobs(model, plain), atol=TOLERANCE, rtol=0)
    np.testing.assert_array_equal(score.top_ids, order)
    np.testing.assert_allclose(score.top_logprobs, top, atol=TOLERANCE, rtol=0)
    np.testing.assert_allclose(score.tail_logprobs, np.log1p(-np.exp(top).sum(-1)), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_everything_that_can_be_asked_at_any_temperature(vllm: TeacherClient, model: Path, temperature: float) -> None:
    rng = np.random.default_rng(3)
    asked = tuple(
        Sequence(
            each.prompt_token_ids,
            each.response_token_ids,
            TokenIds.of(rng.integers(0, reference.VOCAB_SIZE, (len(each.response_token_ids), 1 + place % 3))),
        )
        for place, each in enumerate(SEQUENCES)
    )
    answer = vllm.score(ScoreRequest(asked, temperature=temperature, top_k=5, entropy=True))
    for sequence, score in zip(asked, answer.sequences, strict=True):
        rows = reference.distribution(model, sequence, temperature)
        order = np.argsort(-rows, axis=-1)[:, :5]
        tail = np.log(np.exp(np.sort(rows, axis=-1)[:, :-5]).sum(-1))
        expected = {
            "logprobs": reference.logprobs(model, sequence, temperature),
            "candidate_logprobs": np.take_along_axis(rows, np.asarray(sequence.candidate_ids), -1),
            "top_ids": order,
            "top_logprobs": np.take_along_axis(rows, order, -1),
            "tail_logprobs": tail,
            "entropy": -(np.exp(rows) * rows).sum(-1),
        }
        for name, values in expected.items():
            np.testing.assert_allclose(getattr(score, name), values, atol=TOLERANCE, rtol=0, err_msg=name)


def test_a_sequence_may_be_read_in_two_steps_of_the_engine(vllm: TeacherClient, model: Path) -> None:
    apart = [reference.group(seed, 400 + seed, [50]) for seed in range(20, 27)]
    assert sum(len(s.prompt_token_ids) + len(s.response_token_ids) for (s,) in apart) > STEP_TOKENS
    _assert_exact(vllm, model, tuple(sequence for (sequence,) in apart))


def test_the_longest_sequence_is_scored_and_a_longer_one_is_413(vllm: TeacherClient, model: Path) -> None:
    max_length = vllm.http.get("/v1/capabilities").json()["model"]["max_length"]
    _assert_exact(vllm, model, reference.group(1, max_length - 12, [12]))
    answer = vllm.post(ScoreRequest(reference.group(1, max_length - 12, [13])))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_long")
    assert vllm.http.get("/livez").status_code == 200
