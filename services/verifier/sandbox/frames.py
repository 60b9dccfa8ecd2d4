"""What crosses the border of a gVisor sandbox: frames on its standard input and output. See gvisor.py."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

CONTROL, ORDER, STOP, STREAM = 0, 1, 2, 16  # from STREAM on: data of the file at that place; empty at its end
CHUNK = 1 << 16
_HEAD = struct.Struct("<BI")


def frame(kind: int, payload: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(payload)) + payload


def split(buffer: bytearray) -> Iterator[tuple[int, bytes]]:
    """Take the complete frames off the front of a buffer."""
    while len(buffer) >= _HEAD.size:
        kind, length = _HEAD.unpack_from(buffer)
        end = _HEAD.size + length
        if len(buffer) < end:
            return
        payload = bytes(buffer[_HEAD.size : end])
        del buffer[:end]
        yield kind, payload


def write_all(file: int, data: bytes) -> None:
    """To a blocking file. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


class Outbox:
    """What waits to be written to a file that does not block."""

    def __init__(self, file: int) -> None:
        os.set_blocking(file, False)
        self.file, self._waiting, self._ends = file, bytearray(), False

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    @property
    def is_done(self) -> bool:
        """Nothing waits and nothing more will come."""
        return self._ends and not self._waiting

    def add(self, data: bytes) -> None:
        self._waiting += data

    def end(self) -> None:
        self._ends = True

    def write(self) -> None:
        """As much as there is room for. A reader that is gone takes everything. Raises no OSError but for that file."""
        try:
            del self._waiting[: os.write(self.file, self._waiting[:CHUNK])]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._waiting.clear()
