"""What passes through a worker's pipes: a length, then a msgpack message. Never pickle."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, BinaryIO, TypeVar

import msgspec

from services.verifier.judgement import Judgement

T = TypeVar("T")
LEAVING = {"recycled": 0, "memory": 3, "sandbox": 4}  # why a worker ends by itself, as its exit code
_LENGTH = struct.Struct(">I")


class Hello(msgspec.Struct, frozen=True):
    """A worker's first message, sent once every kind has passed its self-test."""

    isolation: tuple[str, ...]  # the layers it has checked to be in force, on itself and on what it runs
    missing: dict[str, str] = {}  # a layer that is not, and why
    unavailable: dict[str, str] = {}  # a kind that this host cannot judge, and why


class Receipt(msgspec.Struct, frozen=True):
    """Sent as soon as an item has been read: a worker that ends before it did not end over the item."""


class Reply(msgspec.Struct, frozen=True):
    judgement: Judgement
    leaving: str = ""  # why the worker ends after this reply; empty when it goes on


def frame(message: Any) -> bytes:
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


async def receive(stream: asyncio.StreamReader, kind: type[T]) -> T:
    """Raises asyncio.IncompleteReadError when the other side is gone."""
    (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
    return msgspec.msgpack.decode(await stream.readexactly(length), type=kind)


def receive_blocking(stream: BinaryIO, kind: type[T]) -> T | None:
    """The next message; None when the other side is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    return msgspec.msgpack.decode(body, type=kind) if len(body) == length else None
