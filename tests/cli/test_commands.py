"""Commands against a real gateway, and what they say when there is trouble."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from potstill.cli.doctor import Outcome, _packages, examine
from potstill.cli.main import app
from potstill.contracts.state import JobState
from potstill.local.stack import free_ports
from tests.services.gateway.conftest import TOKEN, Gateway


@pytest.fixture
def job_file(gateway: Gateway) -> Path:
    path = gateway.artifacts / "job.yaml"
    path.write_text(yaml.safe_dump(gateway.spec() | {"local": {"engine": "torch"}}))
    return path


def potstill(gateway: Gateway | None, *arguments: str) -> Result:
    url = gateway.url if gateway else "http://127.0.0.1:9"
    environment = {"POTSTILL_URL": url, "POTSTILL_TOKEN": TOKEN, "COLUMNS": "200"}
    return CliRunner().invoke(app, list(arguments), env=environment)


class TestRemoteCommands:
    def test_submit_prints_the_id_and_nothing_else(self, gateway: Gateway, job_file: Path) -> None:
        result = potstill(gateway, "submit", str(job_file), "--set", "training.steps=7")
        assert result.exit_code == 0, result.output
        job = gateway.http.get(f"/v1/jobs/{result.stdout.strip()}").json()
        assert job["spec"]["training"]["steps"] == 7

    def test_status_shows_a_job_and_the_newest_jobs(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        for arguments in (["status"], ["status", job]):
            shown = potstill(gateway, *arguments).stdout
            assert job in shown
            assert "queued" in shown
            assert "0/5" in shown

    def test_pause_resume_and_cancel(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        for verb, status in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled")):
            assert potstill(gateway, verb, job).stdout.strip() == f"{job} is {status}"

    def test_validate_counts_the_problems(self, gateway: Gateway, job_file: Path) -> None:
        result = potstill(gateway, "validate", str(job_file))
        assert "2 training and 1 held-out problems" in result.stdout

    def test_logs_prints_the_events_that_are_there(self, gateway: Gateway) -> None:
        job = gateway.new_job()
        gateway.lane.say(job, "hello")
        assert [line.split()[-1] for line in potstill(gateway, "logs", job).stdout.splitlines()] == ["queued", "hello"]

    @pytest.mark.parametrize(("state", "code"), [(JobState.SUCCEEDED, 0), (JobState.FAILED, 1)])
    def test_watch_ends_with_the_job_and_its_exit_code_tells_how(
        self, gateway: Gateway, state: JobState, code: int
    ) -> None:
        job = gateway.new_job()
        gateway.lane.claim(job)
        gateway.lane.advance(job, state=JobState.RUNNING)
        gateway.lane.advance(job, state=state, release=True)
        gateway.lane.say(job, f"the job {state}", "status", {"status": state})
        result = potstill(gateway, "watch", job)
        assert result.exit_code == code
        assert f"the job {state}" in result.stdout


class TestErrors:
    def one_line(self, result: Result) -> str:
        assert result.exit_code == 1
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output
        (line,) = result.stderr.strip().splitlines()
        return line

    def test_a_gateway_that_is_not_there(self) -> None:
        line = self.one_line(potstill(None, "status"))
        assert line.startswith("potstill: the gateway at http://127.0.0.1:9 does not answer")

    def test_a_job_that_does_not_exist(self, gateway: Gateway) -> None:
        assert "there is no job job_0" in self.one_line(potstill(gateway, "watch", "job_0"))

    def test_a_job_file_that_does_not_exist(self) -> None:
        assert "none.yaml cannot be read" in self.one_line(potstill(None, "run", "none.yaml"))

    def test_data_is_read_before_anything_is_started(self, gateway: Gateway, job_file: Path) -> None:
        result = potstill(None, "run", str(job_file), "--set", "data.train=no.jsonl")
        assert "data.train: " in self.one_line(result)
        assert "no.jsonl does not exist" in result.stderr

    def test_a_wrong_token(self, gateway: Gateway) -> None:
        result = CliRunner().invoke(app, ["status", "--url", gateway.url, "--token", "wrong"])
        assert "POTSTILL_TOKEN" in self.one_line(result)

    def test_a_refused_job_names_each_reason_on_a_line(self, gateway: Gateway, job_file: Path) -> None:
        arguments = ["--set", "student.model=lab/other", "--set", "data.train=no.jsonl"]
        result = potstill(gateway, "submit", str(job_file), *arguments)
        assert result.exit_code == 1
        heading, *reasons = result.stderr.strip().splitlines()
        assert "invalid_job" in heading
        assert {reason.split(":")[0].strip() for reason in reasons} == {"student.model", "data.train"}


class TestServe:
    def test_one_process_alone_answers_and_stops_on_sigterm(self, tmp_path: Path) -> None:
        port = free_ports(["gateway"])["gateway"]
        command = [sys.executable, "-m", "potstill.cli.main", "serve", "gateway", "--port", str(port)]
        environment = os.environ | {"POTSTILL_TOKEN": TOKEN, "POTSTILL_ARTIFACTS": str(tmp_path)}
        process = subprocess.Popen(command, env=environment)
        try:
            for _ in range(200):
                try:
                    assert httpx.get(f"http://127.0.0.1:{port}/livez").json() == {"status": "live"}
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=10) in (0, -signal.SIGTERM)
        finally:
            process.kill()

    def test_a_missing_token_is_one_line_that_says_how_to_make_one(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("POTSTILL_")}
        command = [sys.executable, "-m", "potstill.cli.main", "serve", "gateway"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 2
        (line,) = done.stderr.strip().splitlines()
        assert "openssl rand" in line


class TestDoctor:
    def test_a_missing_package_is_told_with_the_command_that_installs_it(self) -> None:
        check = _packages("student", ("json", "no_such_module"), Outcome.MISSING)
        assert check.outcome is Outcome.MISSING
        assert check.found == "no no_such_module: pip install 'potstill[student]'"

    @pytest.mark.slow
    def test_it_finds_what_this_environment_has(self, gateway: Gateway) -> None:
        checks = {check.subject: check for check in examine(gateway.url, TOKEN)}
        for subject in ("Python", "[student]", "torch and transformers", "queue server", "gateway"):
            assert checks[subject].outcome is Outcome.GOOD, checks[subject]
