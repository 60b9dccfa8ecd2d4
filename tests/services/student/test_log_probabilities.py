"""The numbers beside the tokens are those of the model, at the temperature that the tokens were drawn at."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from potstill.contracts.generation import FinishReason, Sample, Sampling
from services.student.torch_engine import TorchEngine
from tests.services.student.students import prompt

IDS = (1, 87, 85, 71, 84, 201)


def reference(model: Path, sample: Sample, temperature: float) -> torch.Tensor:
    """Log-probabilities [T, V] from one plain forward pass."""
    ids = torch.tensor([[*IDS, *sample.token_ids.tolist()]])
    with torch.inference_mode():
        logits = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)(ids).logits[0]
    return torch.log_softmax(logits[len(IDS) - 1 : -1] / temperature, dim=-1)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
async def test_log_probabilities_are_at_the_sampling_temperature(
    engine: TorchEngine, tiny_model: Path, temperature: float
) -> None:
    sampling = Sampling(temperature=temperature, max_tokens=100)  # crosses the attention span twice
    for sample in await engine.generate(prompt(*IDS, n=3), sampling, 0):
        expected = reference(tiny_model, sample, temperature)
        chosen = expected.gather(1, torch.tensor(sample.token_ids.tolist())[:, None])[:, 0]
        np.testing.assert_allclose(sample.logprobs, chosen.numpy(), atol=1e-4)


async def test_temperature_zero_takes_the_most_likely_token(engine: TorchEngine, tiny_model: Path) -> None:
    (sample,) = await engine.generate(prompt(*IDS), Sampling(temperature=0.0, max_tokens=30), 0)
    expected = reference(tiny_model, sample, 1.0)
    assert sample.token_ids.tolist() == expected.argmax(-1).tolist()
    np.testing.assert_allclose(sample.logprobs, expected.max(-1).values.numpy(), atol=1e-4)


async def test_top_k_are_the_largest_in_order(engine: TorchEngine, tiny_model: Path) -> None:
    (sample,) = await engine.generate(prompt(*IDS), Sampling(temperature=0.8, max_tokens=9), 5)
    values, ids = reference(tiny_model, sample, 0.8).topk(5, dim=-1)
    assert sample.top_ids is not None
    assert sample.top_logprobs is not None
    assert sample.top_ids.tolist() == ids.tolist()
    np.testing.assert_allclose(sample.top_logprobs, values.numpy(), atol=1e-4)


async def test_top_p_draws_from_the_fewest_tokens_that_reach_it(engine: TorchEngine, tiny_model: Path) -> None:
    count, top_p = 4000, 0.6
    sampling = Sampling(temperature=1.3, max_tokens=1, top_p=top_p)
    samples = await engine.generate(prompt(*IDS, n=count), sampling, 0)
    probabilities, order = reference(tiny_model, samples[0], 1.3)[0].exp().sort(descending=True)
    size = int((probabilities.cumsum(0) < top_p).sum()) + 1
    nucleus = probabilities[:size] / probabilities[:size].sum()
    drawn = np.bincount([int(sample.token_ids[0]) for sample in samples], minlength=264)[order.numpy()]
    assert drawn[:size].sum() == count, "a token outside the nucleus was drawn"
    expected = count * nucleus.numpy()
    chi_squared = ((drawn[:size] - expected) ** 2 / expected)[expected > 5].sum()
    degrees = int((expected > 5).sum())
    assert degrees > 5
    assert abs(chi_squared - degrees) < 5 * np.sqrt(2 * degrees)
    place = order.tolist().index(int(samples[0].token_ids[0]))
    np.testing.assert_allclose(samples[0].logprobs, nucleus.log()[place : place + 1].numpy(), atol=1e-4)


async def test_a_sample_with_top_p_changes_nothing_for_those_beside_it(engine: TorchEngine) -> None:
    plain = Sampling(max_tokens=20)
    (alone,) = await engine.generate(prompt(*IDS, seed=5), plain, 0)
    (beside,), _ = await asyncio.gather(
        engine.generate(prompt(*IDS, seed=5), plain, 0),
        engine.generate(prompt(*IDS, n=3), Sampling(max_tokens=20, top_p=0.5), 0),
    )
    assert alone.token_ids.tolist() == beside.token_ids.tolist()
    assert alone.logprobs.tolist() == beside.logprobs.tolist()


@pytest.mark.parametrize("temperature", [0.6, 1.0])
async def test_tokens_are_drawn_with_their_probability(
    engine: TorchEngine, tiny_model: Path, temperature: float
) -> None:
    count = 4000
    samples = await engine.generate(prompt(*IDS, n=count), Sampling(temperature=temperature, max_tokens=1), 0)
    drawn = np.bincount([int(sample.token_ids[0]) for sample in samples], minlength=264)
    expected = count * reference(tiny_model, samples[0], temperature)[0].exp().numpy()
    common = expected > 5
    chi_squared = ((drawn - expected)[common] ** 2 / expected[common]).sum()
    degrees = int(common.sum())
    assert degrees > 20
    assert abs(chi_squared - degrees) < 5 * np.sqrt(2 * degrees)


async def test_a_stop_token_ends_the_sample_and_is_its_last_id(engine: TorchEngine, tiny_model: Path) -> None:
    stops = tuple(range(0, 264, 16))
    samples = await engine.generate(prompt(*IDS, n=24), Sampling(max_tokens=12, stop_token_ids=stops), 0)
    assert {sample.finish_reason for sample in samples} == {FinishReason.STOP, FinishReason.LENGTH}
    for sample in samples:
        *body, last = sample.token_ids.tolist()
        assert not set(body) & set(stops)
        assert (last in stops) == (sample.finish_reason is FinishReason.STOP)
        assert last in stops or len(sample.token_ids) == 12
        assert np.isfinite(sample.logprobs).all()
        assert len(sample.logprobs) == len(sample.token_ids)
