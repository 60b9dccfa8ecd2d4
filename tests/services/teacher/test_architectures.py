"""The torch engine on models that differ where it matters: positions, windows, biases, what follows the head."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
)

from potstill.contracts.scoring import ScoreRequest
from potstill.service.settings import SettingsError
from services.teacher.settings import TeacherSettings
from services.teacher.torch_model import TorchModel
from tests.services.teacher import reference

SMALL: dict[str, Any] = {
    "vocab_size": reference.VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "eos_token_id": 2,
}
SEQUENCES = reference.group(1, 20, [9, 1, 30]) + reference.group(2, 300, [5, 40])


def _write(folder: Path, config: PreTrainedConfig, tokenizer: Path) -> Path:
    shutil.copytree(tokenizer, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "config",
    [
        Qwen2Config(**SMALL),
        MistralConfig(**SMALL, sliding_window=16),
        GPT2Config(vocab_size=reference.VOCAB_SIZE, n_embd=64, n_layer=2, n_head=4, n_positions=512, eos_token_id=2),
    ],
    ids=lambda config: config.model_type,
)
def test_scores_are_the_models_own(config: PreTrainedConfig, model: Path, tmp_path: Path, other_teacher) -> None:
    folder = _write(tmp_path / "model", config, model)
    with other_teacher(folder) as teacher:
        answer = teacher.score(ScoreRequest(SEQUENCES, temperature=0.7))
    for sequence, score in zip(SEQUENCES, answer.sequences, strict=True):
        np.testing.assert_allclose(score.logprobs, reference.logprobs(folder, sequence, 0.7), atol=1e-4, rtol=0)


def test_a_model_whose_logits_change_after_the_head_is_not_served(model: Path, tmp_path: Path) -> None:
    config = Gemma2Config(**SMALL, head_dim=16, final_logit_softcapping=3.0)
    folder = _write(tmp_path / "model", config, model)
    loaded = TorchModel(TeacherSettings(auth="off", teacher_model=str(folder), teacher_dtype="float32"))
    with pytest.raises(SettingsError, match="changes its logits after the head: use the vllm engine"):
        loaded.check_arithmetic()
