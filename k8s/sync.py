"""Write the generated parts of the chart: `make chart`.

Helm reads no file outside a chart, so rules and dashboards are copied into it; README.md lists the values with the
comments above them.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "k8s" / "potstill"
COPIES = CHART / "files"
SOURCES = (("deploy/prometheus", "*.rules.yml"), ("deploy/grafana", "*.json"))
KEY = re.compile(r"^(?P<indent> *)(?P<key>\w+):(?P<value>.*)$")
INTRODUCTION = """# The Helm chart of Potstill

Written by `make chart` from the comments in values.yaml. How to install it is in
[docs/operators/install.md](../../docs/operators/install.md).

| value | default | what |
|---|---|---|
"""


def sources() -> list[Path]:
    """Rules and dashboards as they are in the repository."""
    return sorted(path for folder, pattern in SOURCES for path in (ROOT / folder).rglob(pattern))


def copy_files() -> None:
    shutil.rmtree(COPIES, ignore_errors=True)
    COPIES.mkdir()
    for path in sources():
        shutil.copyfile(path, COPIES / path.name)


def readme() -> str:
    """The table of values."""
    text = (CHART / "values.yaml").read_text()
    return INTRODUCTION + "".join(f"| {' | '.join(row)} |\n" for row in rows(text))


def rows(text: str) -> list[tuple[str, str, str]]:
    """Value, default and description of every key that is not itself a list's item. A block has no default."""
    defaults: dict[str, Any] = yaml.safe_load(text)
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    found: list[tuple[str, str, str]] = []
    for line in text.splitlines():
        match = KEY.match(line)
        if line.lstrip().startswith("#"):
            comment.append(line.lstrip("# "))
            continue
        if match and not _inside_list(defaults, [key for _, key in path if _ < len(match["indent"])]):
            indent = len(match["indent"])
            path = [(depth, key) for depth, key in path if depth < indent] + [(indent, match["key"])]
            keys = [key for _, key in path]
            value = _at(defaults, keys)
            is_block = isinstance(value, dict) and not match["value"].strip()
            default = "" if is_block else f"`{json.dumps(value)}`"
            if not is_block or comment:
                found.append((f"`{'.'.join(keys)}`", default, " ".join(comment).replace("|", "\\|")))
        comment = []
    return found


def _at(defaults: dict[str, Any], keys: list[str]) -> Any:
    value: Any = defaults
    for key in keys:
        value = value[key]
    return value


def _inside_list(defaults: dict[str, Any], keys: list[str]) -> bool:
    return isinstance(_at(defaults, keys), list)


def main() -> None:
    copy_files()
    (CHART / "README.md").write_text(readme())
    sys.stdout.write(f"k8s/potstill: {len(sources())} files copied, README.md written\n")


if __name__ == "__main__":
    main()
