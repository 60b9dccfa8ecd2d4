"""The registry of teachers as a setting: which name is served where."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_settings import NoDecode


def parse_urls(value: Any) -> Any:
    """Accept a mapping, JSON, or `name=url,name=url`."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith("{"):
        return json.loads(text)
    pairs = [entry.split("=", 1) for entry in text.split(",") if entry.strip()]
    if any(len(pair) != len(("name", "url")) for pair in pairs):
        raise ValueError("write name=url,name=url or a JSON object")
    return {name.strip(): url.strip() for name, url in pairs}


TeacherUrls = Annotated[dict[str, str], NoDecode, BeforeValidator(parse_urls)]
