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
    canonical = json.dumps(deciding, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
