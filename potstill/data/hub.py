"""Data sets of the Hugging Face hub: `hub:owner/name`, and after it what else needs saying.

`hub:owner/name/config@revision:split`; the split is `train` where none is named. A revision keeps a job
that is resumed on the rows that it began with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potstill.data.errors import FILE, DataError

PREFIX = "hub:"
FORM = "hub:owner/name/config@revision:split, of which config, @revision and :split may be left out"
_PATTERN = re.compile(
    r"hub:(?P<dataset>[\w.-]+/[\w.-]+)(/(?P<config>[\w.-]+))?(@(?P<revision>[\w.-]+))?(:(?P<split>[\w.-]+))?"
)


@dataclass(frozen=True)
class HubSource:
    dataset: str  # owner/name
    config: str | None = None
    revision: str | None = None
    split: str = "train"
    files: tuple[str, ...] = ()  # JSONL files to read instead of what the hub takes the data set for

    def __str__(self) -> str:
        config, revision = f"/{self.config}" if self.config else "", f"@{self.revision}" if self.revision else ""
        return f"{PREFIX}{self.dataset}{config}{revision}:{self.split}"


def is_hub_source(source: str | Path) -> bool:
    return str(source).startswith(PREFIX)


def parse_hub_source(text: str) -> HubSource:
    """Raises DataError when the text is not of the form."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise DataError(FILE, f"{text} names no data set of a hub: write {FORM}")
    return HubSource(match["dataset"], match["config"], match["revision"], match["split"] or "train")


def hub_rows(source: str | HubSource) -> Iterator[dict[str, Any]]:
    """The rows of one split. Raises DataError when the library is missing or the data set cannot be had."""
    wanted = parse_hub_source(source) if isinstance(source, str) else source
    try:
        import datasets
    except ImportError as error:
        message = f"{wanted} needs the library datasets: pip install 'potstill[hub]', or name a local file"
        raise DataError(FILE, message) from error
    try:
        yield from _load(datasets, wanted)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(FILE, f"{wanted} cannot be read from the hub ({reason}): name a local file instead") from error


def _load(datasets: Any, wanted: HubSource) -> Any:
    if wanted.files:
        revision = wanted.revision or "main"
        files = [f"hf://datasets/{wanted.dataset}@{revision}/{name}" for name in wanted.files]
        return datasets.load_dataset("json", data_files=files, split="train")
    return datasets.load_dataset(wanted.dataset, wanted.config, revision=wanted.revision, split=wanted.split)
