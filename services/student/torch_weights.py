"""The torch engine's model: its initial weights, full policies copied over them, or one LoRA adapter beside them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from services.student.float32_head import with_float32_head
from services.student.policy import PolicyFolder, PolicyKind
from services.student.slot_decoder import ATTENTION
from services.student.weight_files import WeightsRejectedError, read_shapes, require_same_tensors

LOAD_ERRORS = (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError)


class TorchWeights:
    """One model whose weights are replaced as a whole or not at all. One thread owns it."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: torch.device, max_lora_rank: int) -> None:
        self._folder = folder
        self._dtype = dtype
        self._device = device
        self._max_lora_rank = max_lora_rank
        self._adapters: PeftModel | None = None
        self._loads = 0
        self._is_initial = True
        self.model = self._initial_model()
        self._shapes = {name: tuple(tensor.shape) for name, tensor in self.model.state_dict().items()}

    def load(self, policy: PolicyFolder) -> None:
        """Serve `policy` from now on; `model` may be another object afterwards. Raises WeightsRejectedError."""
        try:
            if policy.kind is PolicyKind.LORA:
                self._load_adapter(policy)
            else:
                self._load_full(policy)
        except WeightsRejectedError:
            raise
        except LOAD_ERRORS as error:
            raise WeightsRejectedError(f"{policy.weights}: {error}") from error

    def _initial_model(self) -> PreTrainedModel:
        model = AutoModelForCausalLM.from_pretrained(self._folder, dtype=self._dtype, attn_implementation=ATTENTION)
        return with_float32_head(model.to(self._device).eval().requires_grad_(False))

    def _load_full(self, policy: PolicyFolder) -> None:
        tied = getattr(self.model, "all_tied_weights_keys", {})
        require_same_tensors(policy.weights, read_shapes(policy.weights), self._shapes, optional=tied)
        tensors = load_file(policy.weights)  # all of it before the first copy: a read error must leave no mixture
        self._drop_adapters()
        served = self.model.state_dict()
        with torch.inference_mode():
            for name, tensor in tensors.items():
                served[name].copy_(tensor)
        self._is_initial = False

    def _load_adapter(self, policy: PolicyFolder) -> None:
        shapes = read_shapes(policy.weights)
        config = self._adapter_config(policy.folder)
        base = self.model if self._is_initial else self._initial_model()
        adapters = self._adapters if base is self.model else None
        name = self._next_name(policy)
        adapters = _with_adapter(adapters, base, name, config)
        try:
            expected = {key: tuple(value.shape) for key, value in _adapter_state(adapters, name).items()}
            require_same_tensors(policy.weights, shapes, expected)
            set_peft_model_state_dict(adapters, load_file(policy.weights), adapter_name=name)
        except LOAD_ERRORS:
            _without_adapter(adapters, name)
            raise
        adapters.set_adapter(name, inference_mode=True)
        for old in [known for known in adapters.peft_config if known != name]:
            adapters.delete_adapter(old)
        self._adapters, self.model, self._is_initial = adapters, base, True

    def _adapter_config(self, folder: Path) -> LoraConfig:
        config = PeftConfig.from_pretrained(str(folder))
        if not isinstance(config, LoraConfig):
            raise WeightsRejectedError(f"{folder} holds a {config.peft_type} adapter; only LoRA is served")
        if config.r > self._max_lora_rank:
            raise WeightsRejectedError(
                f"{folder} has rank {config.r}, above POTSTILL_STUDENT_MAX_LORA_RANK = {self._max_lora_rank}"
            )
        config.inference_mode = True
        return config

    def _next_name(self, policy: PolicyFolder) -> str:
        self._loads += 1
        job = re.sub(r"\W", "_", policy.family.parent.name)
        return f"{job}_{policy.version:06d}_{self._loads}"

    def _drop_adapters(self) -> None:
        if self._adapters is not None:
            self._adapters.unload()
        self._adapters = None


def _with_adapter(adapters: PeftModel | None, base: PreTrainedModel, name: str, config: LoraConfig) -> PeftModel:
    """Add a fresh adapter of this shape; layers are injected into `base` itself."""
    if adapters is None:
        return PeftModel(base, config, adapter_name=name)
    adapters.add_adapter(name, config)
    return adapters


def _without_adapter(adapters: PeftModel, name: str) -> None:
    if len(adapters.peft_config) == 1:
        adapters.unload()
    else:
        adapters.delete_adapter(name)


def _adapter_state(adapters: PeftModel, name: str) -> dict[str, Any]:
    return dict(get_peft_model_state_dict(adapters, adapter_name=name))
