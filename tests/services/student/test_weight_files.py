"""What is turned away by a look at the header."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from services.student.weight_files import (
    Shapes,
    WeightsRejectedError,
    read_shapes,
    require_adapter_fits,
    require_same_tensors,
)

BASE = {"model.q.weight": (8, 4), "model.norm.weight": (4,)}
PATH = Path("adapter_model.safetensors")


def adapter(module: str = "model.q", a: tuple[int, ...] = (2, 4), b: tuple[int, ...] = (8, 2)) -> Shapes:
    prefix = f"base_model.model.{module}"
    return {f"{prefix}.lora_A.weight": a, f"{prefix}.lora_B.weight": b}


def test_shapes_are_those_that_were_written(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2, 3), "b": torch.zeros(4, dtype=torch.bfloat16)}, tmp_path / "x.safetensors")
    assert read_shapes(tmp_path / "x.safetensors") == {"a": (2, 3), "b": (4,)}


def test_weights_that_are_no_floats_are_rejected(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2, dtype=torch.int8)}, tmp_path / "x.safetensors")
    with pytest.raises(WeightsRejectedError, match="holds I8"):
        read_shapes(tmp_path / "x.safetensors")


@pytest.mark.parametrize("content", [b"", b"\x01", b"\xff" * 64, (8).to_bytes(8, "little") + b"[1,2,3] "])
def test_what_is_no_safetensors_file_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(WeightsRejectedError):
        read_shapes(tmp_path / "x")


def test_an_error_names_what_is_wrong() -> None:
    found = {"model.q.weight": (8, 5), "model.other.weight": (1,)}
    with pytest.raises(WeightsRejectedError) as caught:
        require_same_tensors(PATH, found, BASE)
    for part in ("missing: model.norm.weight", "unknown: model.other.weight", "another shape: model.q.weight"):
        assert part in str(caught.value)


def test_a_tied_head_may_be_there_or_not() -> None:
    require_same_tensors(PATH, BASE, BASE | {"lm_head.weight": (9, 4)}, optional=("lm_head.weight",))
    require_same_tensors(PATH, BASE | {"lm_head.weight": (9, 4)}, BASE, optional=("lm_head.weight",))


def test_an_adapter_that_fits_is_accepted() -> None:
    require_adapter_fits(PATH, adapter(), BASE, max_rank=2)


@pytest.mark.parametrize(
    "found",
    [
        {},
        adapter(module="model.unknown"),
        adapter(module="model.norm", a=(2, 4), b=(4, 2)),
        adapter(a=(3, 4), b=(8, 3)),
        adapter(a=(2, 5)),
        adapter(b=(7, 2)),
        {"base_model.model.model.q.lora_A.weight": (2, 4)},
        {"model.q.weight": (8, 4)},
    ],
    ids=["empty", "unknown module", "a vector", "rank", "inputs", "outputs", "half a pair", "full weights"],
)
def test_an_adapter_that_does_not_fit_is_rejected(found: Shapes) -> None:
    with pytest.raises(WeightsRejectedError):
        require_adapter_fits(PATH, found, BASE, max_rank=2)
