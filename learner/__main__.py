"""`python -m learner`."""

from __future__ import annotations

import os
import signal

import torch
from transformers.utils.logging import disable_progress_bar

from learner.app import build
from learner.control import Heartbeat
from learner.lane import Lane
from learner.settings import LearnerSettings
from potstill.service.serve import serve_in_thread, settings_or_exit


def main() -> None:
    settings = settings_or_exit(LearnerSettings)
    disable_progress_bar()  # the log is lines
    _make_deterministic(settings.learner_threads)
    heartbeat = Heartbeat()
    lane = Lane(settings, heartbeat)
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: lane.stop())
    probes = serve_in_thread(build(settings, heartbeat), settings)
    lane.run()
    probes.should_exit = True


def _make_deterministic(threads: int) -> None:
    """The same groups give the same weights, as far as the device's kernels allow."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
    torch.use_deterministic_algorithms(True, warn_only=True)
    if threads:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    main()
