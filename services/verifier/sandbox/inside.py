"""The first process in a gVisor sandbox: makes files of the frames that come in, and frames of what programs write.

The fork server is its child, forked before anything has come in, so that no program inherits what passes through here.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import struct
import sys
from typing import Any, NoReturn

from services.verifier.sandbox import fork_server
from services.verifier.sandbox.frames import CHUNK, CONTROL, ORDER, STOP, STREAM, Outbox, frame, split, write_all

INWARD, OUTWARD = 0, 1


class Inside:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._received = bytearray()
        self._written: dict[int, int] = {}  # open file that the program writes, to its place
        self._read: dict[int, Outbox] = {}  # place to what the program reads as it comes

    def serve(self) -> None:
        """Until the outside or the fork server is gone."""
        while True:
            poller = select.poll()
            for file in (INWARD, self._control.fileno(), *self._written):
                poller.register(file, select.POLLIN)
            waiting = {box.file: box for box in self._read.values() if not box.is_empty}
            for file in waiting:
                poller.register(file, select.POLLOUT)
            for file, _event in poller.poll():
                if file == INWARD:
                    if not self._take_frames():
                        return
                elif file == self._control.fileno():
                    message = self._control.recv(fork_server.MAX_MESSAGE)
                    if not message:
                        return
                    self._finish(message)
                    break  # the files of this round are closed
                elif file in self._written:
                    self._pass_out(file)
                elif file in waiting:
                    waiting[file].write()
            self._close_what_is_read()

    def _take_frames(self) -> bool:
        data = os.read(INWARD, CHUNK)
        self._received += data
        for kind, payload in split(self._received):
            if kind == ORDER:
                self._start(payload)
            elif kind == STOP:
                self._control.send(fork_server.STOP)
            elif (box := self._read.get(kind - STREAM)) is not None:
                box.add(payload) if payload else box.end()
        return bool(data)

    def _start(self, payload: bytes) -> None:
        (length,) = struct.unpack_from("<I", payload)
        head = json.loads(payload[4 : 4 + length])
        contents = memoryview(payload)[4 + length :]
        files = []
        for place, kind in enumerate(head["files"]):
            if isinstance(kind, int):
                files.append(_file_of(contents[:kind]))
                contents = contents[kind:]
                continue
            reading, writing = os.pipe()
            files.append(writing if kind == "out" else reading)
            if kind == "out":
                os.set_blocking(reading, False)
                self._written[reading] = place
            else:
                self._read[place] = Outbox(writing)
        socket.send_fds(self._control, [json.dumps(head["given"]).encode()], files)
        for file in files:
            os.close(file)

    def _pass_out(self, file: int) -> bool:
        """Whether there was something."""
        try:
            data = os.read(file, CHUNK)
        except BlockingIOError:
            return False
        write_all(OUTWARD, frame(STREAM + self._written[file], data))
        if not data:
            del self._written[file]
            os.close(file)
        return bool(data)

    def _finish(self, message: bytes) -> None:
        """Nobody writes any more: pass on what is left, then say how it ended."""
        for file in list(self._written):
            while self._pass_out(file):
                pass
        for file in (*self._written, *(box.file for box in self._read.values())):
            os.close(file)
        self._written, self._read = {}, {}
        write_all(OUTWARD, frame(CONTROL, message))

    def _close_what_is_read(self) -> None:
        for place in [place for place, box in self._read.items() if box.is_done]:
            os.close(self._read.pop(place).file)


def _file_of(content: memoryview) -> int:
    """A file in memory that nobody can change, at its beginning."""
    file = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    write_all(file, bytes(content))
    fcntl.fcntl(
        file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    )
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _become_fork_server(plan: dict[str, Any], control: socket.socket) -> NoReturn:
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, INWARD)
    os.dup2(nothing, OUTWARD)
    os.close(nothing)
    fork_server.serve(plan, control.detach())
    os._exit(0)


def main() -> None:
    plan = json.loads(sys.argv[1])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        _become_fork_server(plan, theirs)
    theirs.close()
    Inside(ours).serve()
