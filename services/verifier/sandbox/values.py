"""Python values as JSON and back: data only, so that reading them runs nobody's code.

Scalars and lists stand for themselves; anything else is an object with one key that says what it is.
"""

from __future__ import annotations

import math
from typing import Any

EXACT_INTEGER = 2**53
MAX_DEPTH = 200


class NotDataError(TypeError):
    """A value that is no plain data, or not the encoding of any."""


def encode(value: Any, depth: int = 0) -> Any:
    """JSON for a value. A subclass is taken for the plain type it extends. Raises NotDataError."""
    if depth > MAX_DEPTH:
        raise NotDataError(f"it is nested more than {MAX_DEPTH} levels deep")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        number = int.__index__(value)
        return number if -EXACT_INTEGER < number < EXACT_INTEGER else {"int": hex(number)}
    if isinstance(value, float):
        real = float.__float__(value)
        return real if math.isfinite(real) else {"float": repr(real)}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, complex):
        return {"complex": [encode(value.real), encode(value.imag)]}
    if isinstance(value, bytes | bytearray):
        return {type(value).__name__ if type(value) in (bytes, bytearray) else "bytes": bytes(value).hex()}
    return _encode_collection(value, depth + 1)


def _encode_collection(value: Any, depth: int) -> Any:
    if isinstance(value, list):
        return [encode(each, depth) for each in list.__iter__(value)]
    if isinstance(value, tuple):
        return {"tuple": [encode(each, depth) for each in tuple.__iter__(value)]}
    if isinstance(value, dict):
        return {"dict": [[encode(key, depth), encode(each, depth)] for key, each in dict.items(value)]}
    if isinstance(value, set):
        return {"set": [encode(each, depth) for each in set.__iter__(value)]}
    if isinstance(value, frozenset):
        return {"frozenset": [encode(each, depth) for each in frozenset.__iter__(value)]}
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), depth)
    raise NotDataError(f"{type(value).__name__} is no plain data")


def decode(document: Any, depth: int = 0) -> Any:
    """The value of what `encode` gave. Raises NotDataError for anything else."""
    if depth > 2 * MAX_DEPTH:
        raise NotDataError("it is nested too deeply")
    if document is None or isinstance(document, bool | int | float | str):
        return document
    if isinstance(document, list):
        return [decode(each, depth + 1) for each in document]
    if not isinstance(document, dict) or len(document) != 1:
        raise NotDataError("an object must have one key")
    [(kind, content)] = document.items()
    try:
        return _DECODERS[kind](content, depth + 1)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotDataError(f"no {str(kind)[:40]!r} can be made of it: {error}"[:200]) from error


def _list(content: Any, depth: int) -> list[Any]:
    if not isinstance(content, list):
        raise NotDataError("a list is missing")
    return [decode(each, depth) for each in content]


_DECODERS: dict[str, Any] = {
    "int": lambda content, _depth: int(content, 16),
    "float": lambda content, _depth: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content],
    "complex": lambda content, depth: complex(*_list(content, depth)),
    "bytes": lambda content, _depth: bytes.fromhex(content),
    "bytearray": lambda content, _depth: bytearray.fromhex(content),
    "tuple": lambda content, depth: tuple(_list(content, depth)),
    "set": lambda content, depth: set(_list(content, depth)),
    "frozenset": lambda content, depth: frozenset(_list(content, depth)),
    "dict": lambda content, depth: dict(_list(content, depth)),
}
