"""Settings of the teacher service."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from potstill.service.settings import ServiceSettings


class TeacherSettings(ServiceSettings):
    teacher_engine: str = Field(default="torch", description="`torch`, or `vllm`.")
    teacher_model: str = Field(min_length=1, description="A folder in Hugging Face format, or a hub id.")
    teacher_revision: str | None = Field(default=None, description="Branch, tag or commit of a hub id.")
    teacher_dtype: Literal["float32", "bfloat16"] = Field(default="bfloat16", description="Of the weights that serve.")
    teacher_device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="Of the torch engine.")
    teacher_threads: int = Field(default=0, ge=0, description="CPU threads of the engine; 0 leaves its default.")
    teacher_max_length: int | None = Field(
        default=None, gt=1, description="Longest prompt and response together; unset, what the model was made for."
    )
    teacher_memory_bytes: int | None = Field(
        default=None, gt=0, description="Estimated bytes of admitted work; unset, half of what is free after loading."
    )
    teacher_prefix_bytes: int = Field(
        default=256 * 2**20, ge=0, description="Keys and values of prompt prefixes kept for reuse; 0 keeps none."
    )
    teacher_score_cache_bytes: int = Field(
        default=64 * 2**20, ge=0, description="Answers kept for sequences asked about again; 0 keeps none."
    )
    teacher_max_waiting: int = Field(default=256, ge=0, description="Requests that may wait for admission.")
    teacher_wait_seconds: float = Field(default=120.0, gt=0, description="Longest wait for admission.")
    teacher_kv_cache_gib: int = Field(default=1, gt=0, description="Key/value cache of vLLM on a CPU.")
    teacher_gpu_memory_share: float = Field(default=0.9, gt=0, le=1, description="Of one GPU, for vLLM.")
    teacher_tensor_parallel: int = Field(default=1, gt=0, description="GPUs one replica of vLLM spans.")
