"""Events as pages and as a live stream, read with the project's own client and by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import httpx
import pytest

from potstill.client import ApiError, Client, UnreachableError
from potstill.contracts.job import Event
from potstill.contracts.state import JobState
from tests.services.gateway.conftest import TOKEN, Gateway


@pytest.fixture
def running(gateway: Gateway) -> str:
    """A job that a learner works on."""
    job = gateway.new_job()
    gateway.lane.claim(job)
    gateway.lane.advance(job, state=JobState.RUNNING)
    return job


def follow_in_background(client: Client, job: str, into: list[Event]) -> threading.Thread:
    thread = threading.Thread(target=lambda: into.extend(client.events(job)), daemon=True)
    thread.start()
    return thread


class TestPages:
    def test_a_cursor_goes_on_after_the_last_event_seen(self, gateway: Gateway, running: str) -> None:
        for number in range(3):
            gateway.lane.say(running, f"message {number}")
        path = f"/v1/jobs/{running}/events"
        first = gateway.http.get(path, params={"limit": 2}).json()
        assert [event["message"] for event in first["data"]] == ["the job is queued", "message 0"]
        assert first["has_more"]
        rest = gateway.http.get(path, params={"after": first["data"][-1]["id"]}).json()
        assert [event["message"] for event in rest["data"]] == ["message 1", "message 2"]
        assert not rest["has_more"]


class TestStream:
    def test_events_come_as_they_happen_and_end_with_the_job(self, gateway: Gateway, running: str) -> None:
        seen: list[tuple[str, float]] = []

        def read() -> None:
            for event in Client(gateway.url, TOKEN).events(running):
                seen.append((event.message, time.monotonic()))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        time.sleep(0.5)
        said = time.monotonic()
        gateway.lane.say(running, "hello")
        time.sleep(0.5)
        gateway.lane.succeed(running)
        reader.join(timeout=10)
        assert not reader.is_alive()
        assert [message for message, _ in seen] == ["the job is queued", "hello", "the job has succeeded"]
        assert seen[1][1] - said < 0.4

    def test_an_ended_job_can_still_be_read_and_the_stream_ends_by_itself(self, gateway: Gateway, running: str) -> None:
        gateway.lane.succeed(running)
        messages = [event.message for event in Client(gateway.url, TOKEN).events(running)]
        assert messages[-1] == "the job has succeeded"

    def test_the_stream_goes_on_after_the_last_event_id(self, gateway: Gateway, running: str) -> None:
        ids = [gateway.lane.say(running, f"message {number}") for number in range(4)]
        gateway.lane.succeed(running)
        headers = {"accept": "text/event-stream", "last-event-id": ids[1]}
        response = gateway.http.get(f"/v1/jobs/{running}/events", headers=headers)
        assert response.headers["content-type"].startswith("text/event-stream")
        received = [line.removeprefix("id: ") for line in response.text.splitlines() if line.startswith("id: ")]
        assert received[:2] == ids[2:]
        assert len(received) == 3, "two messages and the status"

    def test_a_quiet_stream_is_kept_alive_with_comments(self, gateway: Gateway, running: str) -> None:
        headers = {"accept": "text/event-stream"}
        with gateway.http.stream("GET", f"/v1/jobs/{running}/events", headers=headers) as response:
            comments = (line for line in response.iter_lines() if line.startswith(":"))
            assert next(comments)

    def test_a_job_that_ends_without_saying_so_ends_its_stream(self, gateway: Gateway, running: str) -> None:
        gateway.lane.advance(running, state=JobState.CANCELLED, release=True)
        begun = time.monotonic()
        assert [event.message for event in Client(gateway.url, TOKEN).events(running)] == ["the job is queued"]
        assert time.monotonic() - begun < 8

    def test_open_streams_are_counted_and_forgotten_when_the_reader_goes(self, gateway: Gateway, running: str) -> None:
        def open_streams() -> float:
            lines = httpx.get(f"{gateway.url}/metrics").text.splitlines()
            return float(next(line.split()[1] for line in lines if line.startswith("potstill_event_streams_open ")))

        before = open_streams()
        headers = {"accept": "text/event-stream"}
        with httpx.stream("GET", f"{gateway.url}/v1/jobs/{running}/events", headers=_authorized(headers)) as response:
            lines = response.iter_lines()
            next(lines)
            assert open_streams() == before + 1
        deadline = time.monotonic() + 8
        while open_streams() != before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert open_streams() == before

    def test_a_client_outlives_a_restart_of_the_gateway(
        self, gateway: Gateway, start_gateway: Callable[..., Gateway], running: str
    ) -> None:
        first = start_gateway()
        port = int(first.url.rsplit(":", 1)[1])
        seen: list[Event] = []
        reader = follow_in_background(Client(first.url, TOKEN), running, seen)
        time.sleep(0.5)
        gateway.lane.say(running, "before")
        time.sleep(0.3)
        first.stop()
        gateway.lane.say(running, "while it was away")
        start_gateway(port=port)
        gateway.lane.say(running, "after")
        gateway.lane.succeed(running)
        reader.join(timeout=20)
        assert [event.message for event in seen] == [
            "the job is queued",
            "before",
            "while it was away",
            "after",
            "the job has succeeded",
        ]


class TestClientErrors:
    def test_a_refusal_is_typed_and_carries_the_problem(self, gateway: Gateway) -> None:
        with pytest.raises(ApiError) as caught:
            Client(gateway.url, TOKEN).submit(gateway.spec(data={"train": "no.jsonl"}))
        assert (caught.value.status, caught.value.code) == (422, "data_not_found")
        assert caught.value.problem.errors[0].field == "data.train"

    def test_a_gateway_that_is_not_there_is_named(self) -> None:
        with pytest.raises(UnreachableError, match=r"http://127\.0\.0\.1:9"):
            Client("http://127.0.0.1:9", TOKEN).list()

    def test_the_whole_life_of_a_job_through_the_client(self, gateway: Gateway) -> None:
        client = Client(gateway.url, TOKEN)
        assert client.validate(gateway.spec()).train_problems == 2
        job = client.submit(gateway.spec(), idempotency_key=gateway.url)
        assert client.submit(gateway.spec(), idempotency_key=gateway.url).id == job.id
        assert client.list(limit=1).data[0].id == job.id
        assert client.pause(job.id).status is JobState.PAUSED
        assert client.resume(job.id).status is JobState.QUEUED
        gateway.lane.report(job.id, 1, {"loss": 0.5})
        assert [(entry.step, entry.values) for entry in client.metrics(job.id)] == [(1, {"loss": 0.5})]
        assert client.checkpoints(job.id) == []
        assert client.trajectories(job.id).step is None
        assert client.cancel(job.id).status is JobState.CANCELLED


def _authorized(headers: dict[str, str]) -> dict[str, str]:
    return headers | {"authorization": f"Bearer {TOKEN}"}
