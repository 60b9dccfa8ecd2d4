"""What counts as a model to evaluate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from potstill.evaluation.models import ModelError, find_model


def model_in(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize("inside", ["", "final", "hf"])
def test_a_model_is_found_in_a_folder_a_job_and_a_checkpoint(tmp_path: Path, inside: str) -> None:
    model = model_in(tmp_path / "job" / inside) if inside else model_in(tmp_path / "job")
    assert find_model(str(tmp_path / "job")).base == str(model)


def test_the_folder_of_a_run_leads_to_its_checkpoint(tmp_path: Path) -> None:
    model = model_in(tmp_path / "run" / "jobs" / "job_1" / "final")
    (tmp_path / "run" / "summary.json").write_text(json.dumps({"job_id": "job_1", "checkpoint": str(model)}))
    assert find_model(str(tmp_path / "run")).base == str(model)


def test_an_adapter_is_served_on_its_base_as_a_published_policy(tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "owner/base", "r": 8}')
    (adapter / "adapter_model.safetensors").write_bytes(b"weights")
    found = find_model(str(adapter))
    assert found.base == "owner/base"
    policy = found.publish(tmp_path / "out")
    assert policy is not None
    folder = Path(policy.uri.removeprefix("file://"))
    assert folder.is_relative_to(tmp_path / "out")
    assert (folder / "adapter_model.safetensors").read_bytes() == b"weights"


def test_a_name_that_is_no_folder_is_a_hub_id_and_a_path_that_is_none_is_an_error(tmp_path: Path) -> None:
    hub = find_model("owner/name")
    assert (hub.base, hub.publish(tmp_path), hub.digest()) == ("owner/name", None, "")
    (tmp_path / "empty").mkdir()
    for given in (str(tmp_path / "none"), "./none", str(tmp_path / "empty")):
        with pytest.raises(ModelError):
            find_model(given)


def test_other_files_are_another_model(tmp_path: Path) -> None:
    model = model_in(tmp_path / "model")
    before = find_model(str(model)).digest()
    (model / "config.json").write_text('{"a": 1}')
    assert find_model(str(model)).digest() != before
