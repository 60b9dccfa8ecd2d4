"""What the student adds to vLLM's worker processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

if TYPE_CHECKING:
    import torch


class PolicyWorker:
    """Mixed into the worker class (`worker_extension_cls`)."""

    model_runner: Any

    def load_full_policy(self, folder: str) -> None:
        """Replace all weights in place."""
        self.model_runner.reload_weights(weights_path=folder)
        _renew_heads(self.model_runner.get_model())


def _renew_heads(model: torch.nn.Module) -> None:
    """Pack the output head again.

    On a CPU a layer computes with a packed copy of its weight. A reload packs the layers whose weights the file names,
    and a head that is tied to the embedding is not named: it would go on computing with the old weights.
    """
    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)
