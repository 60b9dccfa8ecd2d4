"""With the torch engine the samples of a prompt are decided by prompt, seed and weights: to the last bit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from potstill.contracts.generation import Prompt, Sample, Sampling
from services.student.policy import PolicyFolder, PolicyKind
from services.student.torch_engine import TorchEngine
from tests.services.student.students import prompt, publish, student_settings

SAMPLING = Sampling(max_tokens=24, stop_token_ids=(2,))
PROMPT = prompt(1, 87, 85, 71, 84, 201, n=4, seed=11)


def strangers(count: int) -> list[Prompt]:
    random = np.random.default_rng(5)
    lengths = random.integers(1, 120, count)
    return [prompt(*random.integers(3, 250, length).tolist(), n=3, seed=i) for i, length in enumerate(lengths)]


def assert_identical(left: tuple[Sample, ...], right: tuple[Sample, ...]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert a.token_ids.tobytes() == b.token_ids.tobytes()
        assert a.logprobs.tobytes() == b.logprobs.tobytes()
        assert a.finish_reason == b.finish_reason


async def in_company(engine: TorchEngine, before: int, after: int) -> tuple[Sample, ...]:
    """Sample PROMPT between strangers, some of which are being decoded when it arrives."""
    earlier = [asyncio.ensure_future(engine.generate(other, SAMPLING, 0)) for other in strangers(before)]
    await asyncio.sleep(0.03)
    mine = asyncio.ensure_future(engine.generate(PROMPT, SAMPLING, 0))
    later = [asyncio.ensure_future(engine.generate(other, SAMPLING, 0)) for other in strangers(after)]
    await asyncio.gather(*earlier, *later)
    return await mine


@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 6), (5, 5)])
async def test_samples_are_the_same_alone_and_in_company(engine: TorchEngine, before: int, after: int) -> None:
    alone = await engine.generate(PROMPT, SAMPLING, 0)
    assert_identical(alone, await in_company(engine, before, after))


async def test_a_fixed_number_of_rows_is_invariant_too(engine: TorchEngine) -> None:
    """What engines fall back to where the matrix library has no fixed order of additions."""
    decoder = engine._require_scheduler().decoder
    decoder.row_counts = (decoder.slots,)
    alone = await engine.generate(PROMPT, SAMPLING, 0)
    assert_identical(alone, await in_company(engine, 4, 4))


async def test_bfloat16_is_invariant_too(tiny_model: Path, tmp_path: Path) -> None:
    engine = TorchEngine(student_settings(tiny_model, tmp_path, student_dtype="bfloat16"))
    await engine.start()
    alone = await engine.generate(PROMPT, SAMPLING, 0)
    crowded = await in_company(engine, 4, 4)
    await engine.stop()
    assert_identical(alone, crowded)


async def test_samples_are_the_same_before_and_after_other_weights(engine: TorchEngine, tmp_path: Path) -> None:
    def policy(version: int, seed: int) -> PolicyFolder:
        publish(tmp_path, version, seed=seed)
        return PolicyFolder(version, tmp_path / f"jobs/job_a/policies/{version:06d}", PolicyKind.FULL)

    initial = await engine.generate(PROMPT, SAMPLING, 0)
    await engine.load_policy(policy(1, seed=99))
    other = await engine.generate(PROMPT, SAMPLING, 0)
    await engine.load_policy(policy(2, seed=0))
    restored = await engine.generate(PROMPT, SAMPLING, 0)
    assert other[0].logprobs.tobytes() != initial[0].logprobs.tobytes()
    assert_identical(initial, restored)
    assert [sample.policy_version for sample in (initial[0], other[0], restored[0])] == [0, 1, 2]


async def test_sample_i_does_not_depend_on_how_many_are_asked_for(engine: TorchEngine) -> None:
    more_than_slots = prompt(*PROMPT.token_ids.tolist(), n=20, seed=11)
    many = await engine.generate(more_than_slots, SAMPLING, 0)
    assert_identical(await engine.generate(PROMPT, SAMPLING, 0), many[:4])
    assert len({sample.token_ids.tobytes() for sample in many}) > 1


async def test_neighbouring_seeds_share_no_samples(engine: TorchEngine) -> None:
    first, second = [
        await engine.generate(prompt(1, 87, n=4, seed=seed), Sampling(max_tokens=12), 0) for seed in (3, 4)
    ]
    assert not {s.token_ids.tobytes() for s in first} & {s.token_ids.tobytes() for s in second}
