"""Publishing the student's weights for the engines that sample from it: `policies/000003/`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from learner.model import Student
from learner.storage import TEMPORARY, new_folder, remove_folder, remove_leftovers
from potstill.contracts.generation import PolicyRef

MARGIN = 2  # policies kept beyond the oldest that a ticket may name


class Policies:
    """The published versions of one job. Version `v` is the weights after `v` steps and is never written twice."""

    def __init__(self, folder: Path, max_staleness: int) -> None:
        self._folder = folder.absolute()
        self._keep = max_staleness + 1 + MARGIN
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self._folder)

    def newest(self) -> int | None:
        versions = self._versions()
        return versions[-1] if versions else None

    def reference(self, version: int) -> PolicyRef:
        return PolicyRef(version, self._path(version).as_uri())

    def catches_up(self, version: int) -> bool:
        """Whether it, or a newer one, was published before: replay only catches up with those."""
        newest = self.newest()
        return newest is not None and version <= newest

    def publish(self, version: int, student: Student, weights: Mapping[str, torch.Tensor]) -> None:
        """Make `version` visible, whole, and remove what no ticket names any more; nothing if it only catches up."""
        if self.catches_up(version):
            return
        with new_folder(self._path(version)) as folder:
            if student.is_adapter:
                student.model.save_pretrained(folder, state_dict=dict(weights))
            else:
                student.causal.config.save_pretrained(folder)
                save_file(_as_computed(student, weights), folder / "model.safetensors", metadata={"format": "pt"})
        for old in self._versions()[: -self._keep]:
            remove_folder(self._path(old))

    def _versions(self) -> list[int]:
        return sorted(int(path.name) for path in self._folder.iterdir() if not path.name.startswith(TEMPORARY))

    def _path(self, version: int) -> Path:
        return self._folder / f"{version:06d}"


def _as_computed(student: Student, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Hugging Face names; a tensor that two names share appears under the first, as `tie_word_embeddings` expects.

    Weights travel in the type the student computes in: half the bytes for bfloat16.
    """
    seen: set[int] = set()
    told: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        if tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        dtype = student.dtype if tensor.is_floating_point() else tensor.dtype
        told[name] = tensor.detach().to("cpu", dtype).contiguous()
    return told
