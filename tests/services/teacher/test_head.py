"""From logits to numbers, where the numbers are extreme."""

from __future__ import annotations

import numpy as np
import torch

from services.teacher.head import Wanted, score_hidden, score_logits

ALL = Wanted(temperature=0.5, top_k=2, entropy=True)


def test_minus_infinity_is_kept_and_is_no_entropy() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 1.0, -torch.inf]])
    scores = score_logits(logits, torch.tensor([1]), torch.tensor([[3, 0]]), ALL)
    assert scores.logprobs.tolist() == [-torch.inf]
    assert scores.candidate_logprobs is not None
    assert scores.candidate_logprobs[0, 0] == -torch.inf
    p = 1 / (1 + np.exp(2.0))
    assert scores.entropy is not None
    assert scores.tail_logprobs is not None
    np.testing.assert_allclose(scores.entropy, [-(p * np.log(p) + (1 - p) * np.log(1 - p))], rtol=1e-6)
    assert scores.tail_logprobs.tolist() == [-torch.inf]


def test_a_nan_logit_makes_its_row_nan_and_no_other() -> None:
    logits = torch.tensor([[0.0, torch.nan, 1.0], [0.0, 1.0, 2.0]])
    scores = score_logits(logits, torch.tensor([0, 0]), torch.tensor([[2], [2]]), ALL)
    for values in (
        scores.logprobs,
        scores.candidate_logprobs,
        scores.top_logprobs,
        scores.tail_logprobs,
        scores.entropy,
    ):
        assert values is not None
        assert values[0].isnan().all()
        assert not values[1].isnan().any()


def test_large_logits_do_not_overflow() -> None:
    scores = score_logits(torch.tensor([[1e4, -1e4]]), torch.tensor([0]), None, Wanted(0.5, 1, True))
    assert scores.logprobs.tolist() == [0.0]
    assert scores.tail_logprobs is not None
    assert scores.tail_logprobs.tolist() == [-4e4]


def test_chunks_say_what_the_whole_says() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(13, 8, generator=generator), torch.randn(50, 8, generator=generator)
    targets, candidates = torch.randint(50, (13,), generator=generator), torch.randint(50, (13, 3), generator=generator)
    seen: list[int] = []

    def head(rows: torch.Tensor) -> torch.Tensor:
        seen.append(len(rows))
        return rows @ weight.T

    chunked = score_hidden(hidden, head, targets, candidates, ALL, num_positions=5)
    whole = score_hidden(hidden, head, targets, candidates, ALL, num_positions=13)
    assert seen == [5, 5, 3, 13]
    torch.testing.assert_close(vars(chunked), vars(whole))
