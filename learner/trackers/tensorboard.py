"""TensorBoard event files in the job's folder."""

from __future__ import annotations

from typing import Any

from learner.trackers import RunFacts


class TensorboardTracker:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def log(self, step: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def start(facts: RunFacts) -> TensorboardTracker:
    from torch.utils.tensorboard import SummaryWriter

    # Steps that are replayed replace those written before.
    return TensorboardTracker(SummaryWriter(str(facts.folder / "tensorboard"), purge_step=facts.step + 1))
