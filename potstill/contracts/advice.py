"""What is wrong with a document, in words that say what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


def advice(item: Mapping[str, Any], model: type[BaseModel]) -> str:
    """What to do about one error that pydantic found in a document of this model."""
    if item["type"] == "missing":
        return "is required: add it"
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(item["loc"][-1]), _known_keys(model), n=1)
        return f"there is no such key{f': did you mean {near[0]!r}?' if near else ': remove it'}"
    return f"{item['msg'].removeprefix('Value error, ')}{_given(item['input'])}"


def _given(value: Any) -> str:
    return f" (it is {value!r})" if isinstance(value, str | int | float | bool) else ""


def _known_keys(model: type[BaseModel]) -> list[str]:
    """Every key of the model, at any depth."""
    definitions = model.model_json_schema(by_alias=True)
    schemas = [definitions, *definitions.get("$defs", {}).values()]
    return [key for schema in schemas for key in schema.get("properties", {})]
