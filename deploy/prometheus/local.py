"""A Prometheus on this machine that scrapes given processes under the rules of this folder."""

from __future__ import annotations

import math
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

RULES = Path(__file__).parent
COMPOSE = RULES.parent / "compose" / "prometheus.yml"
BINARY = "prometheus"
START_SECONDS = 60.0
VARIABLE = re.compile(r"\$(lane|job|instance)\b")


class QueryError(Exception):
    """Prometheus did not take an expression."""


@dataclass(frozen=True)
class Series:
    """Samples over time; an instant query gives one each."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def is_known(self) -> bool:
        """Whether any sample is a number."""
        return any(math.isfinite(value) for value in self.values)


@dataclass(frozen=True)
class LocalPrometheus:
    url: str

    def instant(self, expr: str, at: float | None = None) -> list[Series]:
        """Newest values. Raises QueryError."""
        result = self._ask("query", {"query": expr} | ({} if at is None else {"time": at}))
        return [_series(item["metric"], [item["value"]]) for item in result]

    def over_time(self, expr: str, begin: float, end: float, step: float) -> list[Series]:
        """Values from `begin` to `end` (Unix time), every `step` seconds. Raises QueryError."""
        result = self._ask("query_range", {"query": expr, "start": begin, "end": end, "step": step})
        return [_series(item["metric"], item["values"]) for item in result]

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its `health` and `lastError`."""
        answer = httpx.get(f"{self.url}/api/v1/rules", timeout=30.0).json()
        return [rule for group in answer["data"]["groups"] for rule in group["rules"]]

    def _ask(self, route: str, params: dict[str, Any]) -> list[Any]:
        answer = httpx.get(f"{self.url}/api/v1/{route}", params=params, timeout=30.0).json()
        if answer["status"] != "success":
            raise QueryError(f"{answer['error']}: {params['query']}")
        found: list[Any] = answer["data"]["result"]
        return found


def _series(labels: Mapping[str, str], samples: list[Any]) -> Series:
    times, values = zip(*((float(moment), float(value)) for moment, value in samples), strict=True)
    return Series(labels, times, values)


def filled_in(expr: str, interval: str) -> str:
    """A panel's expression as Grafana sends it, with every variable at All."""
    return VARIABLE.sub(".*", expr.replace("$__rate_interval", interval))


def compose_scraping(urls: Mapping[str, str]) -> dict[str, Any]:
    """The scrape job of docker-compose.yml, with `urls` of processes such as `rollout-0` in the place of names."""
    (job,) = yaml.safe_load(COMPOSE.read_text())["scrape_configs"]
    (discovery,) = job.pop("dns_sd_configs")
    named = {name.removesuffix("-inside"): name for name in discovery["names"]}
    return job | {
        "static_configs": [
            {"targets": [url.removeprefix("http://")], "labels": {"__meta_dns_name": named[process.split("-")[0]]}}
            for process, url in urls.items()
        ]
    }


@contextmanager
def local_prometheus(folder: Path, scraping: dict[str, Any], interval: str = "1s") -> Iterator[LocalPrometheus]:
    """Scrape under the rules until the block ends. `scraping` is an entry of `scrape_configs`."""
    port = _free_port()
    folder.mkdir(parents=True, exist_ok=True)
    configuration = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [str(RULES / "*.rules.yml")],
        "scrape_configs": [scraping],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    flags = ("--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn")
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            (BINARY, "--config.file=prometheus.yml", *flags), cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        server = LocalPrometheus(f"http://127.0.0.1:{port}")
        _await(server, process, folder / "prometheus.log")
        yield server
    finally:
        process.terminate()
        process.wait(timeout=30)


def _await(server: LocalPrometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{server.url}/-/ready", timeout=5.0).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"Prometheus did not start: {log.read_text()[-500:]}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
