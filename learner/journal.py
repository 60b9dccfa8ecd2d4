"""The groups of every step, on disk before the step is taken: `journal/step-000012.msgpack`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from learner.errors import JobError
from learner.storage import remove_leftovers, write_file
from potstill.contracts import wire
from potstill.contracts.trajectory import TrajectoryGroup


class Journal:
    """One segment a step. A segment that has its name is complete."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)

    def write(self, step: int, groups: Sequence[TrajectoryGroup]) -> None:
        """Store a step's groups in the order given; on return they survive a power cut."""
        write_file(self._path(step), wire.encode(tuple(groups)))

    def has(self, step: int) -> bool:
        return self._path(step).exists()

    def read(self, step: int) -> list[TrajectoryGroup]:
        """The groups of a step, in the order written. Raises JobError when the segment is damaged."""
        path = self._path(step)
        try:
            return list(wire.decode(path.read_bytes(), tuple[TrajectoryGroup, ...]))
        except wire.MalformedMessageError as error:
            raise JobError("journal_damaged", f"{path} cannot be read: {error}") from error

    def steps(self) -> list[int]:
        return sorted(int(path.stem.removeprefix("step-")) for path in self._folder.glob("step-*.msgpack"))

    def remove_through(self, step: int) -> None:
        """Remove the segments of steps that a complete checkpoint holds."""
        for old in self.steps():
            if old <= step:
                self._path(old).unlink()

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:06d}.msgpack"
