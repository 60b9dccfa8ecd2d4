"""vLLM's worker, with models that score: named to the engine by its path, loaded in the engine's processes."""

from __future__ import annotations

from typing import Any

from vllm.platforms import current_platform
from vllm.utils.import_utils import resolve_obj_by_qualname

from services.teacher.vllm_scoring import register

BASE: Any = resolve_obj_by_qualname(
    "vllm.v1.worker.cpu_worker.CPUWorker" if current_platform.is_cpu() else "vllm.v1.worker.gpu_worker.Worker"
)


class ScoringWorker(BASE):  # type: ignore[misc]
    """The platform's worker."""

    def load_model(self, *arguments: Any, **more: Any) -> None:
        register(self.model_config.architectures[0])
        super().load_model(*arguments, **more)
