from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from potstill.contracts import wire
from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.generation import FinishReason, GenerateRequest, GenerateResponse, PromptSamples, Sample
from potstill.contracts.scoring import ScoreResponse, SequenceScore


def response(ids: list[int], logprobs: list[float | None]) -> GenerateResponse:
    sample = Sample(TokenIds.of(ids), LogProbs.of(logprobs), FinishReason.STOP, policy_version=3)
    return GenerateResponse((PromptSamples((sample,)),))


@pytest.mark.parametrize("media_type", [wire.JSON, wire.MSGPACK])
@given(
    ids=hnp.arrays("<i4", st.integers(0, 30)),
    floats=hnp.arrays("<f4", st.integers(0, 30), elements={"allow_infinity": False}),
)
def test_arrays_survive_both_encodings(media_type: str, ids: np.ndarray, floats: np.ndarray) -> None:
    sent = Sample(TokenIds.of(ids), LogProbs.of(floats), FinishReason.LENGTH, 0)
    got = wire.decode(wire.encode(sent, media_type), Sample, media_type)
    np.testing.assert_array_equal(got.token_ids, ids)
    np.testing.assert_array_equal(got.logprobs, floats)
    assert got.token_ids.dtype == np.dtype("<i4")
    assert got.logprobs.dtype == np.dtype("<f4")


def test_a_missing_value_is_null_in_json_and_never_zero() -> None:
    score = ScoreResponse((SequenceScore(LogProbs.of([-0.5, None, -2.0])),))
    assert wire.encode(score, wire.JSON) == b'{"sequences":[{"logprobs":[-0.5,null,-2.0]}]}'
    for media_type in (wire.JSON, wire.MSGPACK):
        got = wire.decode(wire.encode(score, media_type), ScoreResponse, media_type)
        assert np.isnan(got.sequences[0].logprobs).tolist() == [False, True, False]


def test_msgpack_arrays_are_raw_little_endian_buffers() -> None:
    import msgspec

    plain = msgspec.msgpack.decode(wire.encode(response([1, 256], [-0.5, -1.0])))
    array = plain["prompts"][0]["samples"][0]["token_ids"]
    assert array == {"dtype": "<i4", "shape": [2], "data": b"\x01\x00\x00\x00\x00\x01\x00\x00"}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b'{"prompts":[{"token_ids":[1,2.5]}]}', "token_ids"),
        (b'{"prompts":[{"token_ids":[1,"2"]}]}', "token_ids"),
        (b'{"prompts":[{"token_ids":[[1],[2,3]]}]}', "token_ids"),
        (b'{"prompts":[{"token_ids":[99999999999]}]}', "token_ids"),
        (b'{"prompts":[{"token_ids":[1],"n":"two"}]}', "$.prompts[0].n"),
        (b'{"prompts":{}}', "$.prompts"),
        (b"{}", "prompts"),
        (b"\xff\xfe", "malformed"),
        (b"", ""),
    ],
)
def test_a_malformed_message_names_the_field(body: bytes, where: str) -> None:
    with pytest.raises(wire.MalformedMessageError) as raised:
        wire.decode(body, GenerateRequest, wire.JSON)
    assert where in str(raised.value)


@pytest.mark.parametrize(
    "array",
    [
        {"dtype": "|O", "shape": [1], "data": b"12345678"},
        {"dtype": "<i8", "shape": [1], "data": b"12345678"},
        {"dtype": "<i4", "shape": [3], "data": b"12345678"},
        {"dtype": "<i4", "shape": [-1], "data": b"12345678"},
        {"dtype": "<i4", "shape": [2**40, 2**40], "data": b""},
        {"dtype": "<i4", "shape": [1, 1, 2], "data": b"12345678"},
        {"dtype": "<i4", "shape": [2]},
    ],
)
def test_a_dishonest_buffer_is_refused(array: dict[str, object]) -> None:
    import msgspec

    body = msgspec.msgpack.encode({"prompts": [{"token_ids": array}]})
    with pytest.raises(wire.MalformedMessageError):
        wire.decode(body, GenerateRequest)
