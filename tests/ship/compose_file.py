"""docker-compose.yml with its variables filled in, as Compose does it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\}")
SECRETS = {"POTSTILL_TOKEN": "f" * 64, "VALKEY_PASSWORD": "e" * 64, "GRAFANA_PASSWORD": "d" * 32}


class MissingVariableError(Exception):
    """A variable that must be set is not."""


def filled_in(text: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        given = variables.get(match["name"], "")
        if not given and match["kind"] == "?":
            raise MissingVariableError(f"{match['name']}: {match['rest']}")
        return given or (match["rest"] if match["kind"] == "-" else "")

    return VARIABLE.sub(value, text)


def services(variables: Mapping[str, str] = SECRETS) -> dict[str, dict[str, Any]]:
    """Service name to definition, anchors merged."""
    document: dict[str, Any] = yaml.safe_load(filled_in((ROOT / "docker-compose.yml").read_text(), variables))
    found: dict[str, dict[str, Any]] = document["services"]
    return found


def process_of(service: str) -> str | None:
    """The process that a service runs; None for what is not ours."""
    kind = service.split("-")[0]
    return kind if kind in ("gateway", "rollout", "student", "teacher", "verifier", "learner") else None
