"""Folders that are either complete or not there."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def is_complete(folder: Path, files: Iterable[str]) -> bool:
    return all((folder / name).is_file() for name in files)


@contextmanager
def replaced_when_done(folder: Path) -> Iterator[Path]:
    """Give a fresh folder beside `folder` to write in, and put it in its place when the block ends well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".tmp-{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        yield draft
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
