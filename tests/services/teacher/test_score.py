"""`POST /v1/score` against a dense float64 forward of the same model."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from potstill.contracts import wire
from potstill.contracts.arrays import TokenIds
from potstill.contracts.scoring import ScoreRequest, Sequence
from tests.services.teacher import reference
from tests.services.teacher.conftest import TeacherClient

TOLERANCE = 2e-5
RAGGED = reference.group(1, 20, [9, 1, 30, 2]) + reference.group(2, 300, [5, 17]) + reference.group(3, 1, [4])


class TestLogprobs:
    def test_every_response_token_has_the_models_own_value_first_and_eos_included(
        self, client: TeacherClient, model: Path
    ) -> None:
        answer = client.score(ScoreRequest(RAGGED))
        assert len(answer.sequences) == len(RAGGED)
        for sequence, score in zip(RAGGED, answer.sequences, strict=True):
            np.testing.assert_allclose(score.logprobs, reference.logprobs(model, sequence), atol=TOLERANCE, rtol=0)
            assert score.logprobs.dtype == np.float32
            assert (score.candidate_logprobs, score.top_ids, score.entropy) == (None, None, None)

    @pytest.mark.parametrize("temperature", [0.7, 1.6])
    def test_are_at_the_temperature_asked_for(self, client: TeacherClient, model: Path, temperature: float) -> None:
        answer = client.score(ScoreRequest(RAGGED, temperature=temperature))
        for sequence, score in zip(RAGGED, answer.sequences, strict=True):
            expected = reference.logprobs(model, sequence, temperature)
            np.testing.assert_allclose(score.logprobs, expected, atol=TOLERANCE, rtol=0)
            assert np.abs(score.logprobs - reference.logprobs(model, sequence)).max() > 100 * TOLERANCE

    def test_the_answer_follows_the_order_of_the_request(self, client: TeacherClient) -> None:
        mixed = (RAGGED[0], RAGGED[4], RAGGED[2], RAGGED[5], RAGGED[1])
        whole = client.score(ScoreRequest(mixed))
        for sequence, score in zip(mixed, whole.sequences, strict=True):
            (alone,) = client.score(ScoreRequest((sequence,))).sequences
            np.testing.assert_allclose(score.logprobs, alone.logprobs, atol=TOLERANCE, rtol=0)

    def test_an_empty_response_has_no_values(self, client: TeacherClient) -> None:
        empty = Sequence(reference.ids(1, 5), TokenIds.of([]), TokenIds.of(np.empty((0, 3))))
        request = ScoreRequest((empty, Sequence(TokenIds.of([]), TokenIds.of([])), RAGGED[0]), top_k=2, entropy=True)
        answer = client.score(request).sequences
        assert answer[0].logprobs.shape == (0,)
        assert answer[0].candidate_logprobs is not None
        assert answer[0].candidate_logprobs.shape == (0, 3)
        assert answer[1].top_ids is not None
        assert answer[1].top_ids.shape == (0, 2)
        assert len(answer[2].logprobs) == len(RAGGED[0].response_token_ids)

    def test_a_request_without_sequences_is_answered(self, client: TeacherClient) -> None:
        assert client.score(ScoreRequest(())).sequences == ()

    def test_bfloat16_is_nearer_the_exact_values_than_the_models_own_bfloat16_forward(
        self, model: Path, other_teacher
    ) -> None:
        sequences = tuple(sequence for seed in range(8) for sequence in reference.group(seed, 40, [30, 20, 10]))
        with other_teacher(model, teacher_dtype="bfloat16") as rough:
            answer = rough.score(ScoreRequest(sequences))
        exact = np.concatenate([reference.logprobs(model, sequence) for sequence in sequences])
        plain = np.concatenate([reference.logprobs(model, sequence, dtype=torch.bfloat16) for sequence in sequences])
        ours = np.concatenate([score.logprobs for score in answer.sequences])
        assert 0 < np.abs(ours - exact).mean() < np.abs(plain - exact).mean() < 0.1


class TestDistribution:
    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    def test_top_k_tail_and_entropy(self, client: TeacherClient, model: Path, temperature: float) -> None:
        answer = client.score(ScoreRequest(RAGGED, temperature=temperature, top_k=5, entropy=True))
        for sequence, score in zip(RAGGED, answer.sequences, strict=True):
            rows = reference.distribution(model, sequence, temperature)
            order = np.argsort(-rows, axis=-1)
            top = np.take_along_axis(rows, order[:, :5], -1)
            rest = np.take_along_axis(rows, order[:, 5:], -1)
            assert score.top_ids is not None
            assert score.entropy is not None
            np.testing.assert_array_equal(score.top_ids, order[:, :5])
            np.testing.assert_allclose(score.top_logprobs, top, atol=TOLERANCE, rtol=0)
            np.testing.assert_allclose(score.tail_logprobs, np.log(np.exp(rest).sum(-1)), atol=TOLERANCE, rtol=0)
            np.testing.assert_allclose(score.entropy, -(np.exp(rows) * rows).sum(-1), atol=TOLERANCE, rtol=0)

    def test_the_tail_keeps_its_digits_where_the_top_k_hold_nearly_all_mass(
        self, client: TeacherClient, model: Path
    ) -> None:
        answer = client.score(ScoreRequest(RAGGED, temperature=0.05, top_k=5))
        tails = np.concatenate([score.tail_logprobs for score in answer.sequences if score.tail_logprobs is not None])
        rows = np.concatenate([reference.distribution(model, sequence, 0.05) for sequence in RAGGED])
        expected = np.log(np.exp(np.sort(rows, axis=-1)[:, :-5]).sum(-1))
        assert expected.min() < np.log(1e-8)
        np.testing.assert_allclose(tails, expected, atol=20 * TOLERANCE, rtol=0)

    def test_nothing_is_left_outside_the_whole_vocabulary(self, client: TeacherClient) -> None:
        (score,) = client.score(ScoreRequest(RAGGED[:1], top_k=reference.VOCAB_SIZE)).sequences
        assert score.tail_logprobs is not None
        assert np.isneginf(score.tail_logprobs).all()

    def test_candidates_are_scored_at_their_positions(self, client: TeacherClient, model: Path) -> None:
        generator = np.random.default_rng(0)
        asked = tuple(
            Sequence(
                sequence.prompt_token_ids,
                sequence.response_token_ids,
                TokenIds.of(generator.integers(0, reference.VOCAB_SIZE, (len(sequence.response_token_ids), width))),
            )
            for sequence, width in zip(RAGGED, (3, 7, 1, 0, 2, 2, 5), strict=True)
        )
        answer = client.score(ScoreRequest((*asked, RAGGED[0]), temperature=0.7))
        for sequence, score in zip(asked, answer.sequences, strict=False):
            rows = reference.distribution(model, sequence, 0.7)
            expected = np.take_along_axis(rows, np.asarray(sequence.candidate_ids), -1)
            np.testing.assert_allclose(score.candidate_logprobs, expected, atol=TOLERANCE, rtol=0)
        assert answer.sequences[-1].candidate_logprobs is None


class TestWire:
    def test_json_says_the_same_as_msgpack(self, client: TeacherClient) -> None:
        request = ScoreRequest(RAGGED, temperature=0.7, top_k=2, entropy=True)
        packed = client.score(request)
        answer = client.http.post("/v1/score", content=wire.encode(request, wire.JSON))
        assert answer.headers["content-type"] == wire.JSON
        listed = answer.json()["sequences"]
        for score, plain in zip(packed.sequences, listed, strict=True):
            for name in ("logprobs", "top_ids", "top_logprobs", "tail_logprobs", "entropy"):
                np.testing.assert_array_equal(np.float32(plain[name]), np.float32(getattr(score, name)))
            assert "candidate_logprobs" not in plain

    def test_a_value_that_could_not_be_had_is_null_and_counted(self, broken_model: Path, other_teacher) -> None:
        prompt = reference.ids(1, 6)
        request = ScoreRequest(
            (Sequence(prompt, TokenIds.of([10, 77, 11, 12])), Sequence(prompt, TokenIds.of([10, 20, 30])))
        )
        counter = 'potstill_teacher_missing_values_total{field="logprobs"}'
        with other_teacher(broken_model) as broken:
            before = broken.metric(counter)
            broken_one, whole = broken.score(request).sequences
            listed = broken.http.post("/v1/score", content=wire.encode(request, wire.JSON)).json()["sequences"]
            counted = broken.metric(counter) - before
        is_missing = np.isnan(broken_one.logprobs).tolist()
        # Attention multiplies what is still to come by zero, which NaN survives: the second may be lost too.
        assert is_missing in ([False, False, True, True], [False, True, True, True])
        assert [value is None for value in listed[0]["logprobs"]] == is_missing
        assert counted == 2 * sum(is_missing)
        assert not np.isnan(whole.logprobs).any()

    def test_msgpack_that_is_no_request_is_refused(self, client: TeacherClient) -> None:
        for body in (b"\xc1", msgspec.msgpack.encode({"sequences": [{"prompt_token_ids": 1}]}), b""):
            answer = client.http.post("/v1/score", content=body, headers={"content-type": wire.MSGPACK})
            assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")


@pytest.fixture(scope="module")
def broken_model(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that cannot read token 77: its embedding is NaN, its head is sound."""
    folder = tmp_path_factory.mktemp("broken") / "tiny"
    shutil.copytree(model, folder)
    loaded = LlamaForCausalLM.from_pretrained(model)
    loaded.config.tie_word_embeddings = False
    loaded.lm_head.weight = torch.nn.Parameter(loaded.lm_head.weight.detach().clone())
    with torch.no_grad():
        loaded.model.embed_tokens.weight[77] = torch.nan
    loaded.save_pretrained(folder)
    return folder
