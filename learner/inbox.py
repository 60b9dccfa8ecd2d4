"""Collecting the groups of wanted tickets, whatever is lost or delivered twice on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from learner import metrics
from learner.channel import JobChannel
from learner.control import Control
from potstill.broker.trajectories import Received
from potstill.contracts.ticket import TicketId
from potstill.contracts.trajectory import TrajectoryGroup


class Inbox:
    """Groups of one job that were delivered and are not yet acknowledged, one a ticket."""

    def __init__(
        self,
        channel: JobChannel,
        control: Control,
        *,
        is_settled: Callable[[TicketId], bool],
        issue: Callable[[], None],
        reissue_seconds: float,
    ) -> None:
        """`is_settled` says of a ticket that its group is on disk already; `issue` writes the wanted tickets again."""
        self._channel, self._control = channel, control
        self._is_settled, self._issue = is_settled, issue
        self._reissue_seconds = reissue_seconds
        self._received: dict[TicketId, Received] = {}

    def collect(self, wanted: Sequence[TicketId]) -> list[TrajectoryGroup]:
        """Wait for a group of every wanted ticket; in the order of `wanted`. Raises Interruption.

        Every while the tickets are written again, which does nothing unless the queue has lost them, and what was
        delivered without reaching us is read again.
        """
        reissue_at = 0.0
        while missing := sum(name not in self._received for name in wanted):
            metrics.missing_groups.set(missing)
            self._control.check()
            if time.monotonic() >= reissue_at:
                self._issue()
                self._accept(self._channel.pending_groups())
                reissue_at = time.monotonic() + self._reissue_seconds
            else:
                self._accept(self._channel.new_groups())
        metrics.missing_groups.set(0)
        return [self._received[name].group for name in wanted]

    def acknowledge(self, done: Sequence[TicketId]) -> None:
        """Let the queue forget groups that are on disk; those that came from a journal were forgotten before."""
        entries = [self._received.pop(name).entry for name in done if name in self._received]
        self._channel.acknowledge(entries)

    def _accept(self, batch: Sequence[Received]) -> None:
        unwanted: list[bytes] = []
        for received in batch:
            known = self._received.get(received.group.ticket)
            if self._is_settled(received.group.ticket) or (known and known.entry != received.entry):
                unwanted.append(received.entry)
                continue
            if known is None and received.group.tombstone is not None:
                metrics.tombstones.labels(received.group.ticket.phase).inc()
            self._received[received.group.ticket] = received
        metrics.duplicate_groups.inc(len(unwanted))
        self._channel.acknowledge(unwanted)
