"""Checkpoints: all that resuming needs, in a folder that is complete when it has its manifest."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from learner.errors import JobError
from learner.model import Student
from learner.optimizer import StudentOptimizer
from learner.storage import new_folder, remove_folder, remove_leftovers, sha256, write_file
from potstill.service import failpoints
from potstill.service.logs import get_logger

MANIFEST = "manifest.json"
OPTIMIZER = "optimizer.pt"
MODEL = "hf"

log = get_logger("learner")

Weights = Mapping[str, torch.Tensor]  # whole, by the names of the model's state


class FileEntry(msgspec.Struct, frozen=True):
    path: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What a folder holds. `note` is for people."""

    job_id: str
    step: int
    student: str
    objective: dict[str, Any]
    adapter: bool
    created_at: float
    files: tuple[FileEntry, ...]
    note: str = ""


@dataclass(frozen=True)
class JobFacts:
    """What every manifest of a job says."""

    job_id: str
    student: str
    objective: dict[str, Any]
    adapter: bool

    @property
    def note(self) -> str:
        return f"LoRA adapter only: load it with peft on top of {self.student}" if self.adapter else ""


class Checkpoints:
    """The checkpoints of one job, `step-000010/`; the newest `keep` stay."""

    def __init__(self, folder: Path, facts: JobFacts, keep: int) -> None:
        self._folder, self._facts, self._keep = folder, facts, keep
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)

    def save(self, step: int, student: Student, weights: Weights, optimizer: dict[str, Any]) -> None:
        """Write a complete checkpoint, then remove the oldest ones."""
        with new_folder(self._folder / _name(step)) as folder:
            save_model(student, weights, folder / MODEL)
            torch.save(optimizer, folder / OPTIMIZER)
            failpoints.reached("learner.mid_checkpoint", step)
            write_manifest(folder, self._facts, step)
        for old in self.steps()[: -self._keep]:
            remove_folder(self._folder / _name(old))

    def steps(self) -> list[int]:
        """Steps of complete checkpoints, oldest first; those without a manifest do not count."""
        return sorted(int(path.parent.name.removeprefix("step-")) for path in self._folder.glob(f"step-*/{MANIFEST}"))

    def newest_intact(self) -> int | None:
        """The newest whose files are what its manifest says; a damaged one is named in the log and passed over."""
        for step in reversed(self.steps()):
            if (damage := find_damage(self.path(step))) is None:
                return step
            log.error("checkpoint is damaged and passed over", step=step, damage=damage)
        return None

    def path(self, step: int) -> Path:
        return self._folder / _name(step)


def load_optimizer(checkpoint: Path, optimizer: StudentOptimizer) -> None:
    optimizer.load(torch.load(checkpoint / OPTIMIZER, map_location="cpu", weights_only=True))


def write_final(folder: Path, student: Student, weights: Weights, facts: JobFacts, step: int) -> None:
    """The model to take home: a Hugging Face folder, or a PEFT adapter folder, with tokenizer and manifest."""
    with new_folder(folder) as temporary:
        save_model(student, weights, temporary)
        write_manifest(temporary, facts, step)


def save_model(student: Student, weights: Weights, folder: Path) -> None:
    """Model (float32 master weights) or adapter, with config and tokenizer, as `from_pretrained` reads them."""
    student.model.save_pretrained(folder, state_dict=dict(weights))
    student.tokenizer.save_pretrained(folder)


def write_manifest(folder: Path, facts: JobFacts, step: int) -> None:
    """Hash every file; written last, since it is what makes the folder complete."""
    files = tuple(
        FileEntry(str(path.relative_to(folder)), path.stat().st_size, sha256(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    )
    manifest = Manifest(
        job_id=facts.job_id,
        step=step,
        student=facts.student,
        objective=facts.objective,
        adapter=facts.adapter,
        created_at=time.time(),
        files=files,
        note=facts.note,
    )
    write_file(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def read_manifest(folder: Path) -> Manifest:
    """Raises JobError when it cannot be read."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError) as error:
        raise JobError("checkpoint_damaged", f"{folder / MANIFEST} cannot be read: {error}") from error


def find_damage(folder: Path) -> str | None:
    """How the files differ from the manifest, as one sentence; None when they do not."""
    try:
        manifest = read_manifest(folder)
    except JobError as error:
        return error.detail
    for entry in manifest.files:
        path = folder / entry.path
        if not path.is_file() or path.stat().st_size != entry.bytes:
            return f"{entry.path} is missing or has another size"
        if sha256(path) != entry.sha256:
            return f"{entry.path} has another content than when it was written"
    return None


def _name(step: int) -> str:
    return f"step-{step:06d}"
