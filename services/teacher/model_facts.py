"""What a model folder or hub id says about itself, for `/v1/capabilities`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from potstill.contracts.capabilities import ModelInfo
from potstill.contracts.fingerprint import chat_template_fingerprint, tokenizer_fingerprint
from potstill.service.settings import SettingsError
from services.teacher.settings import TeacherSettings

LOCAL_REVISION = "local"


def model_id(settings: TeacherSettings) -> str:
    """The hub id, or the absolute path of a local folder."""
    path = Path(settings.teacher_model)
    return str(path.resolve()) if path.is_dir() else settings.teacher_model


def load_config(settings: TeacherSettings) -> Any:
    """The model's configuration. Raises SettingsError when there is no such model."""
    try:
        return AutoConfig.from_pretrained(model_id(settings), revision=settings.teacher_revision)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise SettingsError(f"POTSTILL_TEACHER_MODEL: {settings.teacher_model!r} cannot be read: {reason}") from error


def describe_model(settings: TeacherSettings, config: Any, vocab_size: int, max_length: int) -> ModelInfo:
    """Facts of the loaded model. Raises SettingsError when its tokenizer has no fingerprint."""
    name = model_id(settings)
    tokenizer = AutoTokenizer.from_pretrained(name, revision=settings.teacher_revision)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise SettingsError(
            f"POTSTILL_TEACHER_MODEL: {name!r} has no fast tokenizer (tokenizer.json), so none to compare"
        )
    return ModelInfo(
        id=name,
        revision=getattr(config, "_commit_hash", None) or settings.teacher_revision or LOCAL_REVISION,
        vocab_size=vocab_size,
        tokenizer=tokenizer_fingerprint(backend.to_str()),
        eos_token_ids=_eos_token_ids(settings, config, tokenizer),
        max_length=max_length,
        chat_template=chat_template_fingerprint(tokenizer.chat_template),
    )


def resolve_max_length(settings: TeacherSettings, config: Any) -> int:
    """The configured length, or the model's own. Raises SettingsError when it is longer than the model reads."""
    made_for = getattr(config.get_text_config(), "max_position_embeddings", None)
    if settings.teacher_max_length is None:
        if made_for is None:
            raise SettingsError("POTSTILL_TEACHER_MAX_LENGTH: the model does not say its length, so set it")
        return int(made_for)
    if made_for is not None and settings.teacher_max_length > made_for:
        raise SettingsError(f"POTSTILL_TEACHER_MAX_LENGTH: the model reads at most {made_for} tokens")
    return settings.teacher_max_length


def _eos_token_ids(settings: TeacherSettings, config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a sequence: generation config, model config, tokenizer."""
    try:
        generation = GenerationConfig.from_pretrained(model_id(settings), revision=settings.teacher_revision)
        named = generation.eos_token_id
    except OSError:
        named = None  # a model without generation_config.json
    found: list[int] = []
    for value in (named, config.get_text_config().eos_token_id, tokenizer.eos_token_id):
        values = value if isinstance(value, list | tuple) else [value]
        found += [int(item) for item in values if item is not None and int(item) not in found]
    return tuple(found)
