"""Message bodies of the bulk routes: msgpack or JSON in, the same out, and both in the OpenAPI document."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from fastapi import Request, Response

from potstill.contracts import wire
from potstill.contracts.arrays import TokenIds, WireArray
from potstill.service.errors import MalformedRequestError

T = TypeVar("T")
SCHEMA_REF = "#/components/schemas/{name}"


async def read_message(request: Request, kind: type[T]) -> T:
    """Decode the body by its Content-Type. Raises MalformedRequestError naming the field."""
    try:
        return wire.decode(await request.body(), kind, _media_type(request.headers.get("content-type")))
    except wire.MalformedMessageError as error:
        raise MalformedRequestError(f"{kind.__name__}: {error}") from error


def message_response(request: Request, message: Any) -> Response:
    """Encode the answer as the caller asks for in Accept; JSON when it does not say."""
    media_type = _media_type(request.headers.get("accept"))
    return Response(wire.encode(message, media_type), media_type=media_type)


async def until_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, cancelling it when the caller hangs up. Call after the body was read."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
        return await task
    finally:
        watcher.cancel()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _media_type(header: str | None) -> str:
    return wire.MSGPACK if header and wire.MSGPACK in header else wire.JSON


_documented: set[type] = set()


def openapi_messages(request: type, response: type) -> dict[str, Any]:
    """`openapi_extra` of a bulk route: both messages, for both media types."""
    _documented.update((request, response))

    def content(kind: type) -> dict[str, Any]:
        schema = {"$ref": SCHEMA_REF.format(name=kind.__name__)}
        return {media_type: {"schema": schema} for media_type in (wire.JSON, wire.MSGPACK)}

    return {
        "requestBody": {"required": True, "content": content(request)},
        "responses": {"200": {"description": "OK", "content": content(response)}},
    }


def message_schemas() -> dict[str, Any]:
    """JSON Schemas of all messages that `openapi_messages` refers to."""
    kinds = sorted(_documented, key=lambda kind: kind.__name__)
    _, components = msgspec.json.schema_components(kinds, schema_hook=_array_schema, ref_template=SCHEMA_REF)
    return components


def _array_schema(kind: type) -> dict[str, Any]:
    if issubclass(kind, TokenIds):
        return {"type": "array", "items": {"type": "integer"}}
    if issubclass(kind, WireArray):
        return {"type": "array", "items": {"type": ["number", "null"]}}
    raise NotImplementedError(f"no schema for {kind}")
