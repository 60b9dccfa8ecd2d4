from __future__ import annotations

import asyncio
import socket
import time

import httpx
import pytest

from learner.app import build
from learner.control import Control, Heartbeat
from learner.errors import JobCancelled, JobPaused, LaneStopping, LeaseLost
from learner.link import Link, LinkTimeoutError
from learner.settings import LearnerSettings
from potstill.broker.jobs import Command
from potstill.service.serve import serve_in_thread


def held(seconds: float = 60.0) -> Control:
    return Control(seconds, Heartbeat())


class TestControl:
    def test_a_lease_not_renewed_in_time_counts_as_lost(self) -> None:
        control = held(0.05)
        control.check()
        time.sleep(0.06)
        with pytest.raises(LeaseLost):
            control.check()
        control.renewed(time.monotonic(), Command.RUN)
        control.check()

    def test_a_renewal_counts_from_when_it_was_asked_for(self) -> None:
        control = held(0.05)
        control.renewed(time.monotonic() - 0.1, Command.RUN)
        with pytest.raises(LeaseLost):
            control.check()

    @pytest.mark.parametrize(("command", "raised"), [(Command.CANCEL, JobCancelled), (Command.PAUSE, JobPaused)])
    def test_commands_of_people_stop_the_trainer(self, command: Command, raised: type[Exception]) -> None:
        control = held()
        control.renewed(time.monotonic(), command)
        with pytest.raises(raised):
            control.check()
        control.renewed(time.monotonic(), Command.RUN)
        control.check()

    def test_a_lost_lease_comes_before_everything(self) -> None:
        control = held()
        control.renewed(time.monotonic(), Command.CANCEL)
        control.stop()
        control.lose("another lane has it")
        with pytest.raises(LeaseLost):
            control.check()

    def test_a_process_that_is_to_end_stops(self) -> None:
        control = held()
        control.stop()
        with pytest.raises(LaneStopping):
            control.check()


class TestLink:
    def test_it_returns_raises_and_gives_up(self) -> None:
        link = Link()

        async def seven() -> int:
            return 7

        async def broken() -> None:
            raise TimeoutError("its own")

        cancelled = []

        async def endless() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        def stop() -> None:
            raise LaneStopping("now")

        assert link.call(seven()) == 7
        with pytest.raises(TimeoutError, match="its own"):
            link.call(broken())
        with pytest.raises(LinkTimeoutError):
            link.call(endless(), timeout=0.1)
        with pytest.raises(LaneStopping):
            link.call(endless(), check=stop)
        link.call(seven())
        link.close()
        assert cancelled == [True, True]


def test_a_loop_that_does_not_go_round_is_not_live() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    heartbeat = Heartbeat()
    settings = LearnerSettings(auth="off", port=port, learner_stuck_seconds=1.0)
    server = serve_in_thread(build(settings, heartbeat), settings)
    while not server.started:
        time.sleep(0.02)
    url = f"http://127.0.0.1:{port}"
    heartbeat.beat()
    assert httpx.get(f"{url}/livez").status_code == 200
    time.sleep(1.1)
    stuck = httpx.get(f"{url}/livez")
    assert stuck.status_code == 503
    assert "has not gone round" in stuck.json()["detail"]
    heartbeat.beat()
    assert httpx.get(f"{url}/livez").status_code == 200
    server.should_exit = True
