"""`python -m learner`; under torchrun, one of the processes that train a student together."""

from __future__ import annotations

import os
import signal
import sys

import torch
from transformers.utils.logging import disable_progress_bar

from learner.app import build
from learner.control import Heartbeat
from learner.lane import Lane
from learner.ranks import Ranks, device_of
from learner.report import Stopwatch
from learner.settings import LearnerSettings
from learner.shard import Orders, Shard
from potstill.service.serve import serve_in_thread, settings_or_exit


def main() -> None:
    settings = settings_or_exit(LearnerSettings)
    disable_progress_bar()  # the log is lines
    _make_deterministic(settings.learner_threads)
    heartbeat = Heartbeat()
    heartbeat.rest()  # until the ranks have met
    probes = serve_in_thread(build(settings, heartbeat), settings) if _is_first_of_node() else None
    device = device_of(settings.learner_device)
    ranks = Ranks.join(device.type)
    (_lead if ranks.leads else _follow)(settings, heartbeat, ranks, device)
    if probes is not None:
        probes.should_exit = True
    sys.exit(1 if ranks.broken else 0)


def _is_first_of_node() -> bool:
    return os.environ.get("LOCAL_RANK", "0") == "0"


def _lead(settings: LearnerSettings, heartbeat: Heartbeat, ranks: Ranks, device: torch.device) -> None:
    lane = Lane(settings, heartbeat, ranks, device)
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: lane.stop())
    lane.run()


def _follow(settings: LearnerSettings, heartbeat: Heartbeat, ranks: Ranks, device: torch.device) -> None:
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, signal.SIG_IGN)  # it ends when the leader does, which finishes its step first
    shard = Shard(ranks, device, Stopwatch(), heartbeat.beat)
    heartbeat.rest()
    while ranks.follow(shard, Orders):
        heartbeat.rest()


def _make_deterministic(threads: int) -> None:
    """The same groups give the same weights, as far as the device's kernels allow."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
    torch.use_deterministic_algorithms(True, warn_only=True)
    if threads:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    main()
