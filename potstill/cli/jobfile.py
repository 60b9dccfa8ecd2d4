"""A job as a YAML file: the spec, and beside it what only a local run needs to know."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, Field, ValidationError

from potstill.contracts.advice import advice
from potstill.contracts.job import JobSpec
from potstill.contracts.strict import Positive, Strict

LOCAL = "local"
M = TypeVar("M", bound=BaseModel)


class JobFileError(Exception):
    """The file cannot be used; one line for each reason."""


class LocalThreads(Strict):
    """CPU threads; unset, the cores are shared out."""

    student: Positive | None = None
    teacher: Positive | None = None
    learner: Positive | None = None


class LocalGpuShares(Strict):
    """Of one GPU's memory, for vLLM; what is left is the learner's."""

    student: float = Field(default=0.35, gt=0, lt=1)
    teacher: float = Field(default=0.35, gt=0, lt=1)


class LocalSection(Strict):
    """How the processes of `potstill run` are started. No part of the job: a deployment has its own settings."""

    engine: Literal["torch", "vllm"] = "torch"
    student_dtype: Literal["float32", "bfloat16"] | None = None  # None: what the learner computes in
    teacher_dtype: Literal["float32", "bfloat16"] = "bfloat16"
    max_length: Positive | None = None
    student_slots: Positive | None = None  # None: the student's own choice
    rollout_workers: Positive = 1
    threads: LocalThreads = LocalThreads()
    gpu_memory: LocalGpuShares = LocalGpuShares()


@dataclass(frozen=True)
class JobFile:
    """A job file that was read and checked."""

    path: Path
    spec: JobSpec
    local: LocalSection


def load_job(path: Path, overrides: Sequence[str] = (), *, seed: int | None = None) -> JobFile:
    """Read a job file and apply `key=value` overrides (`training.steps=5`, `local.engine=vllm`).

    Relative paths of data and models are looked for beside the file first, then in the working folder; a model that is
    in neither is taken as a hub id. Raises JobFileError.
    """
    document = _read(path)
    for override in overrides:
        _apply(document, override)
    if seed is not None:
        document["seed"] = seed
    local = _validated(LocalSection, document.pop(LOCAL, None) or {}, path, prefix=f"{LOCAL}.")
    _resolve_paths(document, path.parent)
    return JobFile(path, _validated(JobSpec, document, path), local)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise JobFileError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = re.sub(r"\s+", " ", str(error))
        raise JobFileError(f"{path} is not YAML: {reason}") from error
    if not isinstance(document, dict):
        raise JobFileError(f"{path} is not a job: it should be a mapping with name, student, teachers and data")
    return document


def _apply(document: dict[str, Any], override: str) -> None:
    dotted, separator, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not separator or not all(keys):
        raise JobFileError(f"--set {override}: write key=value, for example training.steps=5")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise JobFileError(f"--set {override}: the value is not YAML") from error
    place = document
    for key in keys[:-1]:
        inner = place.setdefault(key, {})
        if not isinstance(inner, dict):
            raise JobFileError(f"--set {override}: {key} is not a mapping")
        place = inner
    place[keys[-1]] = value


def _resolve_paths(document: dict[str, Any], folder: Path) -> None:
    """Make paths absolute where they are there; what is not a mapping is left for validation to refuse."""
    data, student, teachers = document.get("data"), document.get("student"), document.get("teachers")
    models = [student, *(teachers.values() if isinstance(teachers, dict) else ())]
    places = [(data, "train", True), (data, "heldout", True), *((model, "model", False) for model in models)]
    for holder, key, must_be_path in places:
        if isinstance(holder, dict) and isinstance(holder.get(key), str):
            holder[key] = _resolved(holder[key], folder, must_be_path)


def _resolved(given: str, folder: Path, must_be_path: bool) -> str:
    candidates = (folder / given, Path(given))
    found = next((candidate for candidate in candidates if candidate.exists()), None)
    if found is None and not must_be_path:
        return given
    return str((found or candidates[0]).resolve())


def _validated(model: type[M], document: Any, path: Path, prefix: str = "") -> M:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        lines = [f"{prefix}{'.'.join(map(str, item['loc']))}: {advice(item, model)}" for item in error.errors()]
        raise JobFileError(f"{path}: " + "; ".join(line.removeprefix(": ") for line in lines)) from error
