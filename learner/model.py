"""The student: loading it, and its log-probabilities of response tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from learner.batch import MicroBatch
from learner.errors import JobError
from learner.head import head_logprobs
from learner.layout import supports
from learner.packing import Layout
from potstill.contracts.job import StudentSpec

HEAD_TOLERANCE = 1e-3


@dataclass
class Student:
    """A causal language model that is trained. Master weights are float32; `dtype` is what the body computes in."""

    model: Any  # PreTrainedModel, or a PeftModel around one
    tokenizer: Any
    name: str  # what the job spec calls it
    dtype: torch.dtype
    is_adapter: bool
    layout: Layout = Layout.ROWS  # how samples lie before its body

    @property
    def causal(self) -> Any:
        """The transformers model with its head, adapters in place."""
        return self.model.get_base_model() if self.is_adapter else self.model

    @property
    def body(self) -> nn.Module:
        """The decoder without its head."""
        module: nn.Module = getattr(self.causal, self.causal.base_model_prefix)
        return module

    @property
    def head(self) -> nn.Module:
        module: nn.Module = self.causal.get_output_embeddings()
        return module

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    def trainable(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]


@dataclass(frozen=True)
class ResponseLogprobs:
    """M response tokens; natural logarithms, at the sampling temperature."""

    logprob_M: Tensor  # with gradient
    entropy_M: Tensor  # nats; with gradient where it was asked for
    candidate_MK: Tensor  # of the batch's candidates, with gradient


def load_student(
    spec: StudentSpec,
    *,
    seed: int,
    device: torch.device,
    checkpoint_folder: Path | None = None,
    gradient_checkpointing: bool = False,
    packing: bool = False,
) -> Student:
    """Load the student of the spec, or the state of a checkpoint's `hf` folder. Raises JobError.

    Adapters start from `seed`, so a job that begins again begins alike.
    """
    torch.manual_seed(seed)
    try:
        model, tokenizer = _load(spec, checkpoint_folder)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise JobError("student_load_failed", f"the student {spec.model!r} could not be loaded: {error}") from error
    student = Student(
        model=model.to(device),
        tokenizer=tokenizer,
        name=spec.model,
        dtype=getattr(torch, spec.dtype),
        is_adapter=spec.lora is not None,
    )
    _check_head(student)
    if packing:
        _pack(student)
    elif not gradient_checkpointing and supports(student.body, Layout.BRANCHES):
        student.layout = Layout.BRANCHES
    if gradient_checkpointing:
        student.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return student


def _pack(student: Student) -> None:
    """Have samples packed into one row; on a GPU with flex attention, which skips what nothing sees."""
    try:
        if student.device.type == "cuda":
            student.causal.set_attn_implementation("flex_attention")
        packs = supports(student.body, Layout.PACKED)
    except ValueError as error:
        raise JobError("student_unsupported", f"{student.name!r} cannot be packed: {error}") from error
    if not packs:
        message = f"{student.name!r} does not give the same in a packed row: leave training.packing out"
        raise JobError("student_unsupported", message)
    student.layout = Layout.PACKED


def _load(spec: StudentSpec, checkpoint_folder: Path | None) -> tuple[Any, Any]:
    full = checkpoint_folder if checkpoint_folder and spec.lora is None else spec.model
    config = _without_dropout(AutoConfig.from_pretrained(full))
    model = AutoModelForCausalLM.from_pretrained(full, config=config, dtype=torch.float32)
    model.train()
    tokenizer = AutoTokenizer.from_pretrained(spec.model)
    if spec.lora is None:
        return model, tokenizer
    import peft

    if checkpoint_folder:
        return peft.PeftModel.from_pretrained(model, checkpoint_folder, is_trainable=True), tokenizer
    adapter = peft.LoraConfig(
        r=spec.lora.rank,
        lora_alpha=spec.lora.alpha,
        target_modules=spec.lora.target_modules,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    return peft.get_peft_model(model, adapter), tokenizer


def _without_dropout(config: Any) -> Any:
    """The policy that is trained must be the policy that sampled, which had no dropout."""
    for name, value in vars(config).items():
        if ("dropout" in name or name.endswith("pdrop")) and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


@torch.no_grad()
def _check_head(student: Student) -> None:
    """Refuse a model whose logits are more than head times hidden state (soft caps, scales): S would not be its S."""
    ids_NL = torch.arange(4, device=student.device)[None]
    full_V = student.causal(input_ids=ids_NL, use_cache=False).logits[0, -1].float().log_softmax(-1)
    hidden_D = student.body(input_ids=ids_NL, use_cache=False).last_hidden_state[0, -1]
    try:
        ours_V = head_logprobs(
            student.head, hidden_D[None], torch.arange(len(full_V), device=student.device)[None], 1.0
        )
    except TypeError as error:
        raise JobError("student_unsupported", f"{student.name!r}: {error}") from error
    if not torch.allclose(full_V, ours_V[0][0], atol=HEAD_TOLERANCE, rtol=HEAD_TOLERANCE):
        message = f"{student.name!r} changes its logits after the head (a soft cap or a scale), which is not supported"
        raise JobError("student_unsupported", message)


def response_logprobs(
    student: Student, batch: MicroBatch, temperature: float, *, entropy_gradient: bool = False
) -> ResponseLogprobs:
    """Log-probability and entropy of every response token of a micro-batch, and of its candidates, from one forward.

    Only the hidden states that predict response tokens go through the head, in float32 and in chunks.
    """
    with torch.autocast(student.device.type, torch.bfloat16, enabled=student.dtype is torch.bfloat16):
        hidden_MD = batch.inputs.hidden_states(student.body).index_select(0, batch.hidden_M)
    # The sampled token and the candidates are read together.
    ids_MJ = torch.cat([batch.target_M[:, None], batch.candidate_ids_MK], dim=1)
    logprob_MJ, entropy_M = head_logprobs(
        student.head, hidden_MD, ids_MJ, temperature, entropy_gradient=entropy_gradient
    )
    return ResponseLogprobs(logprob_MJ[:, 0], entropy_M, logprob_MJ[:, 1:])


@torch.no_grad()
def base_logprobs(student: Student, batch: MicroBatch, temperature: float) -> Tensor:
    """Log-probabilities [M] of the model under the adapter: the same weights, with the adapter out of the way."""
    assert student.is_adapter, "a job that trains full weights has no base"
    with student.model.disable_adapter():
        return response_logprobs(student, batch, temperature).logprob_M
