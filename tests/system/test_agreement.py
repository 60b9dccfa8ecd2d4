"""A teacher that is the student agrees with it at every position, over HTTP, on both engines."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from benchmarks.agreement import measure
from examples.smollm2.weights import prepare_weights

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ENGINES = [
    "torch",
    pytest.param(
        "vllm",
        marks=[
            pytest.mark.vllm,
            pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="no vLLM build is installed"),
        ],
    ),
]


@pytest.fixture(scope="module")
def model() -> Path:
    return prepare_weights()


@pytest.mark.parametrize("engine", ENGINES)
def test_in_float32_they_agree_to_a_thousandth_at_every_position(model: Path, engine: str) -> None:
    found = measure(model, engine, "float32")
    assert found.missing == 0
    assert found.ends > 0, "no sample ended by itself, so the end token was not compared"
    assert found.maximum < 1e-3


@pytest.mark.parametrize("engine", ENGINES)
def test_in_bfloat16_they_agree_in_the_mean(model: Path, engine: str) -> None:
    found = measure(model, engine, "bfloat16")
    assert found.missing == 0
    assert found.mean < 0.03
