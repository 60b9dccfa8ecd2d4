"""What may stop a trainer, asked at every point where it can stop."""

from __future__ import annotations

import math
import time

from learner import metrics
from learner.errors import Interruption, JobCancelled, JobPaused, LaneStopping, LeaseLost
from potstill.broker.jobs import Command

INTERRUPTIONS: dict[Command, type[Interruption]] = {Command.CANCEL: JobCancelled, Command.PAUSE: JobPaused}


class Heartbeat:
    """When the loop last went round."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def rest(self) -> None:
        """Nothing to do until the next beat, however long that takes."""
        self._last = math.inf

    def beat(self) -> None:
        self._last = time.monotonic()
        metrics.heartbeat_seconds.set_to_current_time()

    @property
    def age_seconds(self) -> float:
        return max(0.0, time.monotonic() - self._last)


class Control:
    """One job's reasons to stop. Written by the lease's thread and a signal handler, read by the trainer."""

    def __init__(self, lease_seconds: float, heartbeat: Heartbeat) -> None:
        self._lease_seconds = lease_seconds
        self._heartbeat = heartbeat
        self._renewed = time.monotonic()
        self._command = Command.RUN
        self._lost = ""
        self._stopping = False

    def renewed(self, asked_at: float, command: Command) -> None:
        """The lease holds from `asked_at` (monotonic seconds), and this is what people want."""
        self._renewed, self._command = asked_at, command

    def renewed_now(self) -> None:
        """The lease was taken just now."""
        self._renewed = time.monotonic()

    def lose(self, reason: str) -> None:
        self._lost = reason

    def beat(self) -> None:
        """A sign of life where nothing may stop."""
        self._heartbeat.beat()

    def stop(self) -> None:
        """The process was asked to end."""
        self._stopping = True

    def check(self) -> None:
        """Raises an Interruption when the trainer must stop here.

        A lease that could not be renewed in time counts as lost before another lane can take it.
        """
        self._heartbeat.beat()
        if self._lost:
            raise LeaseLost(self._lost)
        if time.monotonic() - self._renewed > self._lease_seconds:
            raise LeaseLost(f"the lease was not renewed for {self._lease_seconds:.0f} s")
        if interruption := INTERRUPTIONS.get(self._command):
            raise interruption(f"the job was asked to {self._command}")
        if self._stopping:
            raise LaneStopping("the process was asked to end")
