"""Rows of a data set, with their numbers: from JSONL, from Parquet, or from a hub."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from potstill.data.errors import FILE, DataError
from potstill.data.hub import hub_rows, is_hub_source

Row = dict[str, Any]


@dataclass(frozen=True)
class NumberedRow:
    """One row, or why it is none. Numbers start at 1: the line in JSONL, else the row."""

    number: int
    row: Row | None
    where: str  # for messages
    error: DataError | None = None

    def content(self) -> Row:
        """Raises DataError when the row could not be read."""
        if self.row is None:
            assert self.error is not None
            raise self.error
        return self.row


def read_rows(source: str | Path) -> Iterator[NumberedRow]:
    """Every row in its order. Raises DataError when the source as a whole cannot be read."""
    if is_hub_source(source):
        name = str(source)
        yield from _numbered(hub_rows(name), name)
        return
    path = Path(source)
    if not path.is_file():
        raise DataError(FILE, f"{path} does not exist or is not a file")
    if path.suffix == ".parquet":
        yield from _numbered(_parquet_rows(path), path.name)
    elif path.suffix in (".jsonl", ".json"):
        yield from _json_lines(path)
    else:
        raise DataError(FILE, f"{path} is neither .jsonl nor .parquet")


def _numbered(rows: Iterator[Row], name: str) -> Iterator[NumberedRow]:
    for number, row in enumerate(rows, start=1):
        yield NumberedRow(number, row, f"{name}, row {number}")


def _json_lines(path: Path) -> Iterator[NumberedRow]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"{path.name}, row {number}"
            try:
                yield NumberedRow(number, msgspec.json.decode(line, type=Row), where)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                yield NumberedRow(number, None, where, DataError(FILE, f"{where} is not a JSON object: {error}"))


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        message = f"{path} needs pyarrow: pip install 'potstill[parquet]', or convert the file to JSONL"
        raise DataError(FILE, message) from error
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                yield from batch.to_pylist()
    except (arrow.ArrowException, OSError) as error:
        raise DataError(FILE, f"{path} is not a readable Parquet file: {error}") from error
