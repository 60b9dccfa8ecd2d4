"""What a job has left on disk: checkpoints to take home, samples to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from potstill.contracts.job import Checkpoint, TrajectoryList
from services.gateway.errors import NoSuchStepError

MANIFEST = "manifest.json"  # written last: a folder that has one is complete


class JobArtifacts:
    """One job's folder, read only. What is half written is not seen."""

    def __init__(self, root: Path, job_id: str) -> None:
        self._folder = root / "jobs" / job_id

    def checkpoints(self) -> list[Checkpoint]:
        """Complete ones, oldest first; the final model last."""
        found = [_checkpoint(manifest, final=False) for manifest in self._folder.glob(f"checkpoints/step-*/{MANIFEST}")]
        final = self._folder / "final" / MANIFEST
        return sorted(found, key=lambda c: c.step) + ([_checkpoint(final, final=True)] if final.exists() else [])

    def trajectories(self, step: int | None) -> TrajectoryList:
        """Samples of a step, or of the newest. Raises NoSuchStepError for a step that has none."""
        files = {int(path.stem.removeprefix("step-")): path for path in self._folder.glob("trajectories/step-*.jsonl")}
        steps = sorted(files)
        if step is None and not steps:
            return TrajectoryList(step=None, steps=[], data=[])
        chosen = steps[-1] if step is None else step
        if chosen not in files:
            have = f"there are steps {steps[0]} to {steps[-1]}" if steps else "there are none yet"
            raise NoSuchStepError(f"no samples are kept of step {chosen}; {have}")
        lines = files[chosen].read_bytes().splitlines()
        data = [msgspec.json.decode(line, type=dict[str, Any]) for line in lines if line.strip()]
        return TrajectoryList(step=chosen, steps=steps, data=data)


def _checkpoint(manifest: Path, *, final: bool) -> Checkpoint:
    document = msgspec.json.decode(manifest.read_bytes(), type=dict[str, Any])
    folder = manifest.parent
    step = document.get("step", folder.name.removeprefix("step-"))
    return Checkpoint(step=int(step), path=str(folder), created_at=manifest.stat().st_mtime, final=final)
