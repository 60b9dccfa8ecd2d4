"""What `potstill eval` can be given as a model."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from potstill.contracts.generation import PolicyRef

CONFIG, ADAPTER_CONFIG, ADAPTER_WEIGHTS = "config.json", "adapter_config.json", "adapter_model.safetensors"
INNER_FOLDERS = ("final", "hf")  # of a job's artifacts, and of a checkpoint
SUMMARY = "summary.json"  # of a finished `potstill run`
ADAPTER_VERSION = 1


class ModelError(ValueError):
    """There is no model; the text says what would be one."""


@dataclass(frozen=True)
class EvaluatedModel:
    """A model to serve, and the adapter on it, if any."""

    name: str  # as given
    base: str  # a folder or a hub id: what the student loads, and whose tokenizer renders
    adapter: Path | None = None

    def digest(self) -> str:
        """Changes when the files of a local model do; the same for every state of a hub id."""
        folders = [folder for folder in (self.adapter, Path(self.base)) if folder is not None and folder.is_dir()]
        files = [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]
        return ";".join(f"{path.name}:{path.stat().st_size}:{path.stat().st_mtime_ns}" for path in files)

    def publish(self, artifacts: Path) -> PolicyRef | None:
        """Put the adapter where the student looks for policies; None when there is none."""
        if self.adapter is None:
            return None
        folder = artifacts.resolve() / "policies" / f"{ADAPTER_VERSION:06d}"
        folder.mkdir(parents=True, exist_ok=True)
        for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
            shutil.copyfile(self.adapter / name, folder / name)
        return PolicyRef(ADAPTER_VERSION, folder.as_uri())


class _AdapterConfig(msgspec.Struct):
    base_model_name_or_path: str


class _RunSummary(msgspec.Struct):
    checkpoint: str | None = None


def find_model(given: str) -> EvaluatedModel:
    """A Hugging Face folder, a PEFT adapter, a checkpoint, the artifacts of a job or of a run, or a hub id.

    Raises ModelError.
    """
    path = Path(given)
    if path.is_dir():
        folder = _model_folder(path)
        if (folder / ADAPTER_CONFIG).is_file():
            return EvaluatedModel(given, _base_of(folder), folder.resolve())
        return EvaluatedModel(given, str(folder.resolve()))
    if path.exists() or path.is_absolute() or given.startswith(".") or given.count("/") > 1:
        raise ModelError(f"{given} is no model: give a folder with a {CONFIG}, a finished job's folder, or a hub id")
    return EvaluatedModel(given, given)


def _model_folder(path: Path) -> Path:
    candidates = [path, *(path / name for name in INNER_FOLDERS)]
    if (path / SUMMARY).is_file():
        candidates += [Path(checkpoint) for checkpoint in _checkpoint_of_run(path / SUMMARY)]
    for folder in candidates:
        if (folder / ADAPTER_CONFIG).is_file() or (folder / CONFIG).is_file():
            return folder
    raise ModelError(f"{path} holds no model: there is no {CONFIG} in it, nor in {' or '.join(INNER_FOLDERS)} below")


def _checkpoint_of_run(summary: Path) -> list[str]:
    try:
        checkpoint = msgspec.json.decode(summary.read_bytes(), type=_RunSummary).checkpoint
    except msgspec.DecodeError as error:
        raise ModelError(f"{summary} cannot be read: {error}") from error
    return [checkpoint] if checkpoint else []


def _base_of(folder: Path) -> str:
    try:
        return msgspec.json.decode((folder / ADAPTER_CONFIG).read_bytes(), type=_AdapterConfig).base_model_name_or_path
    except msgspec.DecodeError as error:
        raise ModelError(f"{folder / ADAPTER_CONFIG} names no base model: {error}") from error
