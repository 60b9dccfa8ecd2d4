"""An answer depends on its request alone, to the last bit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from potstill.contracts.arrays import TokenIds
from potstill.contracts.scoring import ScoreRequest, ScoreResponse, Sequence
from tests.services.teacher import reference

SHARED = reference.ids(9, 290)  # two whole blocks and a part


def _request(seed: int, prompt_length: int, num_responses: int) -> ScoreRequest:
    prompt = TokenIds.of([*SHARED, *reference.ids(seed, prompt_length)])
    responses = (TokenIds.of([*reference.ids(100 * seed + index, 5 + index), 2]) for index in range(num_responses))
    return ScoreRequest(tuple(Sequence(prompt, response) for response in responses), top_k=3, entropy=True)


REQUESTS = [_request(seed, 10 * seed, 1 + seed % 4) for seed in range(1, 9)]


def _same_bits(one: ScoreResponse, other: ScoreResponse) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(one.sequences, other.sequences, strict=True)
        for name in ("logprobs", "top_ids", "top_logprobs", "tail_logprobs", "entropy")
    )


def test_order_and_what_is_cached_do_not_matter(model: Path, other_teacher) -> None:
    with other_teacher(model, teacher_score_cache_bytes=0) as forwards:
        first = [forwards.score(request) for request in REQUESTS]
        again = [forwards.score(request) for request in REQUESTS]
    with other_teacher(model) as backwards:
        reverse = [backwards.score(request) for request in reversed(REQUESTS)][::-1]
        kept = [backwards.score(request) for request in REQUESTS]
    for answers in zip(first, again, reverse, kept, strict=True):
        assert all(_same_bits(answers[0], other) for other in answers[1:])


def test_what_else_is_in_flight_does_not_matter(model: Path, other_teacher) -> None:
    with other_teacher(model, teacher_score_cache_bytes=0) as teacher:
        alone = [teacher.score(request) for request in REQUESTS]
        with ThreadPoolExecutor(len(REQUESTS)) as pool:
            together = list(pool.map(teacher.score, REQUESTS))
    assert all(_same_bits(a, b) for a, b in zip(alone, together, strict=True))


def test_a_prefix_seen_before_is_not_computed_again(model: Path, other_teacher) -> None:
    computed = 'potstill_teacher_tokens_total{kind="prompt_computed"}'
    with other_teacher(model) as teacher:
        before = teacher.metric(computed)
        teacher.score(REQUESTS[0])
        cold = teacher.metric(computed)
        teacher.score(REQUESTS[1])
        warm = teacher.metric(computed)
    assert cold - before == len(REQUESTS[0].sequences[0].prompt_token_ids)
    assert warm - cold == len(REQUESTS[1].sequences[0].prompt_token_ids) - 256


def test_a_cache_too_small_for_one_block_changes_nothing(model: Path, other_teacher) -> None:
    with other_teacher(model) as roomy, other_teacher(model, teacher_prefix_bytes=1) as tight:
        assert all(_same_bits(roomy.score(request), tight.score(request)) for request in REQUESTS)
