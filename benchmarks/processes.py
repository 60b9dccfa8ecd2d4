"""Services of a benchmark: started on free ports, waited for, stopped."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from potstill.local.stack import HOST, free_ports
from potstill.local.supervisor import ProcessSpec, RestartPolicy, Supervisor
from potstill.local.valkey import EmbeddedValkey

TOKEN = "benchmark-token-for-loopback-only"
START_SECONDS = 300.0


@dataclass(frozen=True)
class Service:
    """A module to run, its settings without the prefix, and the path that says it is ready."""

    module: str
    settings: Mapping[str, str]
    ready: str = "/readyz"
    environment: Mapping[str, str] = field(default_factory=dict)


class Running:
    """Services by name, on loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._supervisor = Supervisor(folder / "logs", RestartPolicy())
        self._valkey: EmbeddedValkey | None = None

    def start(self, services: Mapping[str, Service]) -> dict[str, str]:
        """Base URL of each, once all are ready."""
        ports = free_ports(list(services))
        urls = {name: f"http://{HOST}:{port}" for name, port in ports.items()}
        for name, service in services.items():
            own = {f"POTSTILL_{key}": value for key, value in service.settings.items()}
            own |= {"POTSTILL_PORT": str(ports[name]), "POTSTILL_TOKEN": TOKEN, "POTSTILL_LOG_FORMAT": "console"}
            spec = ProcessSpec(name, (sys.executable, "-m", service.module), own | dict(service.environment))
            self._supervisor.start(spec)
        for name, service in services.items():
            self._wait(f"{urls[name]}{service.ready}")
        return urls

    def queue(self) -> str:
        """URL of an embedded Valkey."""
        self._valkey = EmbeddedValkey.prepare(self.folder / "valkey", free_ports(["valkey"])["valkey"])
        self._supervisor.start(self._valkey.process())
        return self._valkey.url

    def stop(self) -> None:
        self._supervisor.stop()

    def _wait(self, url: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            self._supervisor.check()
            try:
                if httpx.get(url, timeout=10).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url} does not answer; the logs are in {self.folder / 'logs'}")
            time.sleep(0.1)


@contextmanager
def running(folder: Path | None = None) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        services = Running(Path(name).resolve())
        try:
            yield services
        finally:
            services.stop()
