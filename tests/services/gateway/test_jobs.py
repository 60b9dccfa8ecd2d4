"""Reading jobs and changing their state."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from potstill.contracts.state import JobState
from tests.services.gateway.conftest import Gateway


def status(gateway: Gateway, job_id: str) -> str:
    return str(gateway.http.get(f"/v1/jobs/{job_id}").json()["status"])


def command(gateway: Gateway, job_id: str, verb: str) -> httpx.Response:
    return gateway.http.post(f"/v1/jobs/{job_id}/{verb}")


def messages(gateway: Gateway, job_id: str, kind: str) -> list[dict[str, Any]]:
    events = gateway.http.get(f"/v1/jobs/{job_id}/events").json()["data"]
    return [event for event in events if event["type"] == kind]


class TestListing:
    def test_pages_go_from_new_to_old_without_gaps_or_repeats(self, gateway: Gateway) -> None:
        made = [gateway.new_job() for _ in range(5)]
        seen: list[str] = []
        after: str | None = None
        while len(seen) < len(made):
            page = gateway.http.get("/v1/jobs", params={"limit": 2} | ({"after": after} if after else {})).json()
            assert page["object"] == "list"
            seen += [job["id"] for job in page["data"]]
            after = seen[-1]
            assert page["has_more"] or len(seen) >= len(made)
        assert seen[:5] == made[::-1]

    def test_an_unknown_place_to_go_on_from(self, gateway: Gateway) -> None:
        response = gateway.http.get("/v1/jobs", params={"after": "job_0"})
        assert (response.status_code, response.json()["code"]) == (404, "job_not_found")

    @pytest.mark.parametrize("job_id", ["job_0123", "nonsense", "job_x:events", "..%2f.."])
    @pytest.mark.parametrize("tail", ["", "/events", "/metrics", "/checkpoints", "/trajectories"])
    def test_a_job_that_does_not_exist(self, gateway: Gateway, job_id: str, tail: str) -> None:
        response = gateway.http.get(f"/v1/jobs/{job_id}{tail}")
        assert response.status_code == 404
        assert response.headers["content-type"] == "application/problem+json"


class TestCommands:
    def test_a_queued_job_is_cancelled_at_once_and_says_so(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        answer = command(gateway, job, "cancel").json()
        assert answer["status"] == "cancelled"
        assert answer["finished_at"] is not None
        assert messages(gateway, job, "status")[-1]["data"] == {"status": "cancelled"}

    def test_cancelling_twice_is_one_cancellation(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        assert command(gateway, job, "cancel").status_code == 200
        assert command(gateway, job, "cancel").status_code == 200
        assert len(messages(gateway, job, "status")) == 2, "queued and cancelled, once each"

    def test_a_queued_job_can_be_paused_and_resumed(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        assert command(gateway, job, "pause").json()["status"] == "paused"
        assert command(gateway, job, "pause").json()["status"] == "paused"
        assert command(gateway, job, "resume").json()["status"] == "queued"
        assert command(gateway, job, "resume").json()["status"] == "queued"

    @pytest.mark.parametrize("verb", ["pause", "resume"])
    def test_a_job_that_has_ended_stays_so(self, gateway: Gateway, verb: str) -> None:
        job = gateway.new_job()
        command(gateway, job, "cancel")
        response = command(gateway, job, verb)
        assert (response.status_code, response.json()["code"]) == (409, "illegal_transition")
        assert "is cancelled" in response.json()["detail"]

    def test_a_finished_job_cannot_be_cancelled_and_the_answer_names_both_states(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        gateway.lane.claim(job)
        gateway.lane.advance(job, state=JobState.RUNNING)
        gateway.lane.succeed(job)
        detail = command(gateway, job, "cancel").json()["detail"]
        assert "is succeeded" in detail
        assert "cannot become cancelled" in detail

    def test_a_running_job_is_asked_and_its_learner_decides_when(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        gateway.lane.claim(job)
        gateway.lane.advance(job, state=JobState.RUNNING)
        assert command(gateway, job, "pause").json()["status"] == "running"
        assert command(gateway, job, "pause").json()["status"] == "running"
        assert [event["message"] for event in messages(gateway, job, "message")] == [
            "asked to pause; the learner will at its next step"
        ]
        gateway.lane.advance(job, state=JobState.PAUSED, release=True)
        assert status(gateway, job) == "paused"

    def test_a_job_whose_learner_died_is_not_running_for_ever(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        gateway.lane.claim(job, lease_seconds=0.3)
        gateway.lane.advance(job, state=JobState.RUNNING)
        assert status(gateway, job) == "running"
        time.sleep(0.4)
        assert status(gateway, job) == "queued"


class TestProgressAndResults:
    def test_step_result_and_times_come_from_the_record(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        gateway.lane.claim(job)
        gateway.lane.advance(job, state=JobState.RUNNING, step=3)
        assert gateway.http.get(f"/v1/jobs/{job}").json()["progress"] == {"step": 3, "steps": 5}
        heldout = {
            "n": 8,
            "before": 0.25,
            "after": 0.75,
            "gain": 0.5,
            "interval": [0.1, 0.8],
            "before_interval": [0.0, 0.5],
            "after_interval": [0.5, 1.0],
        }
        gateway.lane.succeed(job, {"heldout": heldout, "checkpoint": "/somewhere/final"})
        ended = gateway.http.get(f"/v1/jobs/{job}").json()
        assert ended["status"] == "succeeded"
        assert ended["heldout"] == ended["heldout"] | heldout
        assert ended["checkpoint"] == "/somewhere/final"
        assert ended["started_at"] <= ended["finished_at"]

    def test_the_error_of_a_failed_job_is_told(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        gateway.lane.claim(job)
        error = {"code": "too_many_tombstones", "message": "5 of 8 tickets failed"}
        gateway.lane.advance(job, state=JobState.FAILED, error=error, release=True)
        assert gateway.http.get(f"/v1/jobs/{job}").json()["error"] == error

    def test_metrics_are_paged_in_order(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        for step in (1, 2, 3):
            gateway.lane.report(job, step, {"reverse_kl": 1 / step})
        path = f"/v1/jobs/{job}/metrics"
        first = gateway.http.get(path, params={"limit": 2}).json()
        assert [entry["step"] for entry in first["data"]] == [1, 2]
        assert first["has_more"]
        rest = gateway.http.get(path, params={"after": first["data"][-1]["id"]}).json()
        assert [entry["step"] for entry in rest["data"]] == [3]
        assert not rest["has_more"]

    @pytest.mark.parametrize("query", [{"after": "yesterday"}, {"limit": 0}, {"limit": 100_000}])
    def test_a_wrong_cursor_or_limit_is_refused(self, gateway: Gateway, query: dict[str, Any]) -> None:
        response = gateway.http.get(f"/v1/jobs/{gateway.new_job()}/metrics", params=query)
        assert (response.status_code, response.json()["code"]) == (422, "invalid_request")


class TestArtifacts:
    def write_checkpoint(self, folder: Path, document: dict[str, Any] | None) -> None:
        folder.mkdir(parents=True)
        if document is not None:
            (folder / "manifest.json").write_text(json.dumps(document))

    def test_only_complete_checkpoints_are_listed(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        folder = gateway.artifacts / "jobs" / job
        self.write_checkpoint(folder / "checkpoints" / "step-000020", {"step": 20})
        self.write_checkpoint(folder / "checkpoints" / "step-000010", {"step": 10})
        self.write_checkpoint(folder / "checkpoints" / "step-000030", None)
        self.write_checkpoint(folder / "checkpoints" / ".tmp-step-000040", {"step": 40})
        self.write_checkpoint(folder / "final", {"step": 25})
        listed = gateway.http.get(f"/v1/jobs/{job}/checkpoints").json()["data"]
        assert [(entry["step"], entry["final"]) for entry in listed] == [(10, False), (20, False), (25, True)]
        assert all(Path(entry["path"]).is_dir() for entry in listed)

    def test_samples_are_of_the_step_asked_for_or_of_the_newest(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        path = f"/v1/jobs/{job}/trajectories"
        assert gateway.http.get(path).json()["data"] == []
        folder = gateway.artifacts / "jobs" / job / "trajectories"
        folder.mkdir(parents=True)
        for step in (1, 12):
            (folder / f"step-{step:06d}.jsonl").write_text(json.dumps({"text": f"of step {step}"}) + "\n")
        newest = gateway.http.get(path).json()
        assert (newest["step"], newest["steps"], newest["data"]) == (12, [1, 12], [{"text": "of step 12"}])
        assert gateway.http.get(path, params={"step": 1}).json()["data"] == [{"text": "of step 1"}]
        missing = gateway.http.get(path, params={"step": 5})
        assert (missing.status_code, missing.json()["code"]) == (404, "step_not_found")


class TestTheProcess:
    def test_ready_means_that_redis_answers(self, gateway: Gateway, start_gateway: Callable[..., Gateway]) -> None:
        assert gateway.http.get("/readyz").status_code == 200
        lonely = start_gateway(redis_url="redis://127.0.0.1:9/0")
        for path in ("/readyz", "/v1/jobs"):
            response = lonely.http.get(path)
            assert (response.status_code, response.json()["code"]) == (503, "queue_unavailable")
            assert int(response.headers["retry-after"]) > 0
        assert lonely.http.get("/livez").status_code == 200

    def test_metrics_count_jobs_and_refusals(self, gateway: Gateway) -> None:
        gateway.new_job()
        gateway.submit(gateway.spec(data={"train": "no.jsonl"}))
        time.sleep(0.3)
        text = gateway.http.get("/metrics").text
        assert 'potstill_jobs{state="queued"}' in text
        assert 'potstill_job_refusals_total{code="data_not_found"}' in text
        assert 'potstill_job_submissions_total{outcome="accepted"}' in text

    def test_the_openapi_document_lists_every_route_and_its_typed_errors(self, gateway: Gateway) -> None:
        paths = gateway.http.get("/openapi.json").json()["paths"]
        tails = ["", "/events", "/metrics", "/checkpoints", "/trajectories", "/cancel", "/pause", "/resume"]
        assert {"/v1/jobs", "/v1/jobs:validate"} | {f"/v1/jobs/{{job_id}}{tail}" for tail in tails} <= set(paths)
        responses = paths["/v1/jobs"]["post"]["responses"]
        assert {"202", "400", "401", "409", "422", "503"} <= set(responses)
        assert "idempotency_key_reused" in responses["409"]["description"]
        schema = responses["422"]["content"]["application/problem+json"]["schema"]
        assert {"code", "errors", "request_id"} <= set(schema["properties"])
