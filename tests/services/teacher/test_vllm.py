"""The vLLM engine against a transformers forward: same numbers, fewer features, never a wrong one."""

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


def test_a_shared_prompt_is_read_once_and_a_cached_response_is_still_scored(vllm: TeacherClient, model: Path) -> None:
    reused = 'potstill_teacher_tokens_total{kind="prompt_reused"}'
    before = vllm.metric(reused)
    sequences = reference.group(7, 300, [20, 20])
    _assert_exact(vllm, model, sequences[:1])
    assert vllm.metric(reused) == before
    _assert_exact(vllm, model, sequences[1:])
    assert vllm.metric(reused) - before >= 128
    (long,) = reference.group(8, 20, [400])
    _assert_exact(vllm, model, (long,))
    _assert_exact(vllm, model, (long,))  # its response is in the prefix cache now, where it has no log-probabilities


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


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ScoreRequest(SEQUENCES, temperature=0.7), "temperature_unsupported"),
        (ScoreRequest(SEQUENCES, entropy=True), "entropy_unsupported"),
        (
            ScoreRequest((Sequence(TokenIds.of([5]), TokenIds.of([6]), TokenIds.of([[7]])),)),
            "candidate_ids_unsupported",
        ),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_way_out(vllm: TeacherClient, request_: ScoreRequest, code: str) -> None:
    answer = vllm.post(request_)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert "POTSTILL_TEACHER_ENGINE=torch" in answer.json()["detail"]


def test_the_longest_sequence_is_scored_and_a_longer_one_is_413(vllm: TeacherClient, model: Path) -> None:
    max_length = vllm.http.get("/v1/capabilities").json()["model"]["max_length"]
    _assert_exact(vllm, model, reference.group(1, max_length - 12, [12]))
    answer = vllm.post(ScoreRequest(reference.group(1, max_length - 12, [13])))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_long")
    assert vllm.http.get("/livez").status_code == 200


class TestEntries:
    def test_a_token_is_found_by_its_id_not_by_its_place(self) -> None:
        from vllm.logprobs import FlatLogprobs, Logprob

        from services.teacher.vllm_engine import read_entries

        entries = FlatLogprobs()
        entries.append({512: Logprob(-0.25), 880: Logprob(-3.5)})
        entries.append({512: Logprob(-0.5)})
        score = read_entries(entries, TokenIds.of([880, 77]), top_k=1)
        assert score.logprobs[0] == -3.5
        assert np.isnan(score.logprobs[1])
        assert score.top_ids is not None
        assert score.top_ids.tolist() == [[512], [512]]

    def test_a_tail_below_what_float32_resolves_is_missing(self) -> None:
        from services.teacher.vllm_engine import tail_logprobs

        tails = tail_logprobs(np.log(np.array([[0.5, 0.25], [0.6, 0.4 - 1e-9]], dtype=np.float32)))
        assert tails[0] == pytest.approx(np.log(0.25))
        assert np.isnan(tails[1])
