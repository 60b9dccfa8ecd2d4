"""One fingerprint for one tokenizer, however it was loaded and wherever it lies."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def tokenizer_fingerprint(serialized: str) -> str:
    """Hash what decides how text becomes ids.

    `serialized` is a `tokenizer.json` document (`tokenizer.backend_tokenizer.to_str()` in transformers). Padding and
    truncation settings are run-time state, not part of the tokenizer, and are left out.
    """
    document: dict[str, Any] = json.loads(serialized)
    deciding = {key: document.get(key) for key in ("model", "added_tokens", "normalizer", "pre_tokenizer", "decoder")}
    return _digest(json.dumps(deciding, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def chat_template_fingerprint(template: str | dict[str, str] | None) -> str:
    """Hash what decides how messages become text: a template, or several by name; empty where there is none."""
    if not template:
        return ""
    return _digest(template if isinstance(template, str) else json.dumps(template, sort_keys=True))


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
