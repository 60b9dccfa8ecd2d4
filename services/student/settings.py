"""Settings of the student service."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from potstill.service.settings import ServiceSettings


class StudentSettings(ServiceSettings):
    student_engine: str = Field(default="torch", description="`torch`, or `vllm`.")
    student_model: str = Field(min_length=1, description="A folder in Hugging Face format, or a hub id.")
    student_revision: str | None = Field(default=None, description="Branch, tag or commit of a hub id.")
    student_dtype: Literal["float32", "bfloat16"] = Field(default="float32", description="Of the weights that serve.")
    student_device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="Of the torch engine.")
    student_threads: int = Field(default=0, ge=0, description="CPU threads of the engine; 0 leaves its default.")
    student_max_length: int | None = Field(
        default=None, gt=1, description="Longest prompt and response together; unset, what the model was made for."
    )
    student_slots: int = Field(default=32, gt=0, description="Samples that are generated at the same time.")
    student_max_pending: int = Field(default=1024, gt=0, description="Samples admitted and not answered yet.")
    student_max_top_k: int = Field(default=64, ge=0, description="Largest `top_k` of a request.")
    student_max_lora_rank: int = Field(default=64, ge=0, description="Largest rank of a LoRA policy; 0 serves none.")
    student_kv_cache_gib: int = Field(default=1, gt=0, description="Key/value cache of vLLM on a CPU.")
    student_gpu_memory_share: float = Field(default=0.9, gt=0, le=1, description="Of one GPU, for vLLM.")
    student_tensor_parallel: int = Field(default=1, gt=0, description="GPUs one replica of vLLM spans.")
