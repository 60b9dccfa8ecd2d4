"""One codec for every message: JSON for people, msgpack for processes and for what is stored. Never pickle."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec

from potstill.contracts.arrays import WireArray

JSON = "application/json"
MSGPACK = "application/x-msgpack"

T = TypeVar("T")


class MalformedMessageError(ValueError):
    """The bytes are not a message of the expected type; the text says which field."""


def _decode_custom(kind: type, value: Any) -> Any:
    if issubclass(kind, WireArray):
        return kind.from_wire(value)
    raise NotImplementedError(f"no wire form for {kind}")


def _encode_buffers(value: Any) -> Any:
    if isinstance(value, WireArray):
        return value.to_buffer()
    raise NotImplementedError(f"no wire form for {type(value)}")


def _encode_lists(value: Any) -> Any:
    if isinstance(value, WireArray):
        return value.to_list()
    raise NotImplementedError(f"no wire form for {type(value)}")


_msgpack_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_buffers)
_json_encoder = msgspec.json.Encoder(enc_hook=_encode_lists)


@cache
def _decoder(kind: type, media_type: str) -> msgspec.json.Decoder[Any] | msgspec.msgpack.Decoder[Any]:
    if media_type == MSGPACK:
        return msgspec.msgpack.Decoder(kind, dec_hook=_decode_custom)
    return msgspec.json.Decoder(kind, dec_hook=_decode_custom)


def encode(message: Any, media_type: str = MSGPACK) -> bytes:
    """Encode a message struct as msgpack or JSON."""
    return (_msgpack_encoder if media_type == MSGPACK else _json_encoder).encode(message)


def decode(data: bytes, kind: type[T], media_type: str = MSGPACK) -> T:
    """Decode and validate. Raises MalformedMessageError with the offending path."""
    try:
        decoder: Any = _decoder
        return decoder(kind, media_type).decode(data)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise MalformedMessageError(str(error)) from error
