"""Write docs/settings.md from the settings models: `python docs/settings_table.py`."""

from __future__ import annotations

import importlib
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from potstill.service.settings import ServiceSettings

MODELS = {
    "gateway": "services.gateway.settings.GatewaySettings",
    "rollout": "services.rollout.settings.RolloutSettings",
    "student": "services.student.settings.StudentSettings",
    "teacher": "services.teacher.settings.TeacherSettings",
    "verifier": "services.verifier.settings.VerifierSettings",
    "learner": "learner.settings.LearnerSettings",
}
UNITS = {"_seconds": "seconds", "_bytes": "bytes", "_gib": "GiB", "_share": "share"}
BYTE_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
SIGNS = {Ge: "≥", Gt: ">", Le: "≤", Lt: "<"}
TYPES = {str: "text", int: "whole number", float: "number", Path: "folder"}
HEAD = """# Settings

Every process reads `POTSTILL_*` variables, or a YAML file that `POTSTILL_SETTINGS` names, whose keys are the same names
in lower case without the prefix (`redis_url: …`); a variable comes before the file. A value that cannot be is refused
at start, in one line that names it. A process looks only at its own settings and those of every process. The command
line reads `POTSTILL_URL` and `POTSTILL_TOKEN`. What a job asks for is no setting: see [running.md](running.md).

Written by `python docs/settings_table.py`.
"""
COLUMNS = ["| variable | default | takes | what for |", "|---|---|---|---|"]


def table() -> str:
    """The page."""
    parts = [HEAD, *_section("every process", ServiceSettings.model_fields)]
    for process, path in MODELS.items():
        module, _, name = path.rpartition(".")
        fields = getattr(importlib.import_module(module), name).model_fields
        own = {name: field for name, field in fields.items() if name not in ServiceSettings.model_fields}
        parts += _section(process, own)
    return "\n".join(parts)


def _section(title: str, fields: dict[str, FieldInfo]) -> list[str]:
    return [f"## {title}\n", *COLUMNS, *(_row(name, field) for name, field in fields.items()), ""]


def _row(name: str, field: FieldInfo) -> str:
    return (
        f"| `POTSTILL_{name.upper()}` | {_default(name, field)} | {_takes(name, field)} | {field.description or ''} |"
    )


def _default(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if field.default_factory is not None:
        return "from the machine"
    if value in (None, "", (), {}):
        return "unset"
    if name.endswith("_bytes"):
        return _bytes(value)
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _takes(name: str, field: FieldInfo) -> str:
    kind: Any = field.annotation
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(choice for choice in get_args(kind) if choice is not types.NoneType)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    unit = next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), None)
    if get_origin(kind) is tuple:
        return "folders, separated by commas"
    if get_origin(kind) is dict:
        return "`name=url,name=url`"
    bounds = [_bound(name, limit) for limit in field.metadata if type(limit) in SIGNS]
    return " ".join([unit or TYPES.get(kind, "text"), *bounds])


def _bound(name: str, limit: Any) -> str:
    value = getattr(limit, type(limit).__name__.lower())
    return f"{SIGNS[type(limit)]} {_bytes(value) if name.endswith('_bytes') and value else f'{value:g}'}"


def _bytes(value: int) -> str:
    size, unit = next((size, unit) for size, unit in BYTE_UNITS if value % size == 0)
    return f"{value // size} {unit}"


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(table())
