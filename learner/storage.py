"""Files and folders that are either there, whole and on the disk, or not there."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPORARY = ".tmp-"
HASH_BLOCK = 2**22


def write_file(path: Path, data: bytes) -> None:
    """Replace `path` atomically; on return the bytes survive a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to fill; it becomes `path` when the block ends without an error, replacing what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    yield temporary
    for folder, _, names in os.walk(temporary):
        for name in names:
            with (Path(folder) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(folder))
    remove_folder(path)
    temporary.rename(path)
    sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Take a folder out of sight first, so that nobody reads it half removed."""
    if not path.exists():
        return
    doomed = path.with_name(f"{TEMPORARY}removed-{path.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed)


def remove_leftovers(parent: Path) -> None:
    """What a killed process left half written."""
    for path in parent.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def sync_folder(path: Path) -> None:
    """Make a rename inside a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(HASH_BLOCK):
            digest.update(block)
    return digest.hexdigest()
