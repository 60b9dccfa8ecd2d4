"""Where a model lies, and what it says about itself."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from potstill.contracts.capabilities import ModelInfo
from potstill.contracts.fingerprint import chat_template_fingerprint, tokenizer_fingerprint
from potstill.service.settings import SettingsError
from services.student.settings import StudentSettings
from services.student.weight_files import WeightsRejectedError, header_bytes

HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def fetch_model(settings: StudentSettings) -> Path:
    """The model's folder; a hub id is downloaded, or found in the hub's cache. Raises SettingsError."""
    path = Path(settings.student_model)
    if path.is_dir():
        return path.resolve()
    try:
        return Path(
            snapshot_download(settings.student_model, revision=settings.student_revision, allow_patterns=HUB_FILES)
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, ValueError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise SettingsError(
            f"POTSTILL_STUDENT_MODEL: {settings.student_model!r} is no folder, and the hub has no such model: {reason}"
        ) from error


def describe_model(settings: StudentSettings, folder: Path) -> ModelInfo:
    """Facts of the model in `folder`. Raises SettingsError when it cannot be served as configured."""
    is_local = Path(settings.student_model).is_dir()
    try:
        config = AutoConfig.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        revision = _content_hash(folder) if is_local else folder.name
    except (OSError, ValueError, WeightsRejectedError) as error:
        raise SettingsError(f"POTSTILL_STUDENT_MODEL: {folder} cannot be read: {error}") from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise SettingsError(f"POTSTILL_STUDENT_MODEL: {folder} has no fast tokenizer (tokenizer.json)")
    return ModelInfo(
        id=str(folder) if is_local else settings.student_model,
        revision=revision,
        vocab_size=config.get_text_config().vocab_size,
        tokenizer=tokenizer_fingerprint(backend.to_str()),
        eos_token_ids=_eos_token_ids(folder, config, tokenizer),
        max_length=_max_length(settings, config),
        chat_template=chat_template_fingerprint(tokenizer.chat_template),
    )


def _content_hash(folder: Path) -> str:
    """Names the weights of a local folder by what their headers say: cheap, and the same wherever the folder lies."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        digest.update(header_bytes(path))
    return "sha256:" + digest.hexdigest()[:32]


def _max_length(settings: StudentSettings, config: Any) -> int:
    made_for = getattr(config.get_text_config(), "max_position_embeddings", None)
    wanted = settings.student_max_length
    if made_for is None and wanted is None:
        raise SettingsError("POTSTILL_STUDENT_MAX_LENGTH: the model does not say its length, so set it")
    if made_for is not None and wanted is not None and wanted > made_for:
        raise SettingsError(f"POTSTILL_STUDENT_MAX_LENGTH: the model reads at most {made_for} tokens")
    return int(wanted or made_for or 0)


def _eos_token_ids(folder: Path, config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a sequence: generation config, model config, tokenizer."""
    try:
        named = GenerationConfig.from_pretrained(folder).eos_token_id
    except OSError:
        named = None  # a model without generation_config.json
    found: dict[int, None] = {}
    for value in (named, config.get_text_config().eos_token_id, tokenizer.eos_token_id):
        for item in value if isinstance(value, list | tuple) else [value]:
            if item is not None:
                found[int(item)] = None
    return tuple(found)
