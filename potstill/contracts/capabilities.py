"""What a service says it can do. The gateway reads these before it accepts a job."""

from __future__ import annotations

import msgspec


class ModelInfo(msgspec.Struct, frozen=True):
    id: str  # as configured: a hub id or an absolute path
    revision: str
    vocab_size: int  # rows of the output head, padding included
    tokenizer: str  # sha256:…, see potstill.contracts.fingerprint
    eos_token_ids: tuple[int, ...]
    max_length: int  # prompt and response together
    chat_template: str = ""  # sha256:… of how messages become text; empty where the tokenizer has none


class EngineInfo(msgspec.Struct, frozen=True):
    name: str
    version: str
    dtype: str = ""


class Capabilities(msgspec.Struct, frozen=True):
    service: str
    version: str
    model: ModelInfo | None = None
    engine: EngineInfo | None = None
    limits: dict[str, float] = {}
    features: tuple[str, ...] = ()  # a verifier: the kinds it judges
    isolation: tuple[str, ...] = ()  # a verifier: the layers around what it runs, as found in force
