"""docker-compose.yml: every setting is real, nothing runs with more than it needs, no secret has a default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from learner.settings import LearnerSettings
from services.rollout.settings import RolloutSettings
from tests.ship.compose_file import ROOT, SECRETS, MissingVariableError, process_of, services
from tests.ship.settings_models import SETTINGS, loaded, unknown_variables

SERVICES = services()
OURS = {name: definition for name, definition in SERVICES.items() if process_of(name)}
EXAMPLE = (ROOT / ".env.example").read_text()


def variants(profile: str) -> dict[str, dict[str, Any]]:
    return {name: one for name, one in SERVICES.items() if profile in one.get("profiles", [profile])}


def test_each_profile_runs_every_process_once() -> None:
    for profile in ("cpu", "gpu"):
        found = sorted(kind for name in variants(profile) if (kind := process_of(name)))
        assert found == sorted(SETTINGS)


@pytest.mark.parametrize("name", OURS)
def test_settings_are_those_of_the_process(name: str) -> None:
    process, environment = str(process_of(name)), OURS[name]["environment"]
    assert unknown_variables(process, set(environment)) == set()
    settings = loaded(process, environment)
    assert settings.bearer == SECRETS["POTSTILL_TOKEN"]
    grace = int(OURS[name]["stop_grace_period"].removesuffix("s"))
    assert grace >= settings.drain_seconds + 10


@pytest.mark.parametrize("secret", SECRETS)
def test_a_missing_secret_is_refused_with_what_to_do(secret: str) -> None:
    with pytest.raises(MissingVariableError, match=f"set {secret} in .env: openssl rand"):
        services({name: value for name, value in SECRETS.items() if name != secret})


def test_the_example_has_every_variable_and_no_secret() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", text)) - {"VALKEY_IMAGE", "PROMETHEUS_IMAGE", "GRAFANA_IMAGE"}
    listed = set(re.findall(r"^#?(\w+)=", EXAMPLE, re.MULTILINE))
    assert used <= listed
    assert listed - used == {"COMPOSE_PROFILES"}
    for secret in SECRETS:
        assert re.search(rf"^{secret}=$", EXAMPLE, re.MULTILINE)


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_runs_with_more_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), port


def test_addresses_lead_to_services_that_are_on_a_common_network() -> None:
    for profile in ("cpu", "gpu"):
        named = variants(profile)
        networks = {alias: set(one.get("networks", [])) for name, one in named.items() for alias in _aliases(name, one)}
        for name in ("gateway", "rollout"):
            settings = loaded(name, named[name]["environment"])
            assert isinstance(settings, RolloutSettings) or name == "gateway"
            urls = [settings.student_url, settings.verifier_url, *settings.teachers.values()]  # type: ignore[attr-defined]
            for host, port in (re.fullmatch(r"http://([\w-]+):(\d+)", url).groups() for url in urls):  # type: ignore[union-attr]
                assert port == "8080"
                assert networks[name] & networks[host]
        for name, one in named.items():
            if "POTSTILL_REDIS_URL" in one.get("environment", {}):
                assert networks["valkey"] & set(one["networks"]), name


def _aliases(name: str, service: dict[str, Any]) -> set[str]:
    return {name}.union(*_aliases_by_network(name, service).values())


def _aliases_by_network(name: str, service: dict[str, Any]) -> dict[str, set[str]]:
    networks = service.get("networks", [])
    given = networks if isinstance(networks, dict) else {network: {} for network in networks}
    return {network: {name, *options.get("aliases", [])} for network, options in given.items()}


def test_the_verifier_has_no_way_out_and_none_to_the_queue() -> None:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for network in SERVICES["verifier"]["networks"]:
        assert document["networks"][network]["internal"] is True
        assert network not in SERVICES["valkey"]["networks"]
    assert not any(name.startswith("POTSTILL_REDIS") for name in SERVICES["verifier"]["environment"])


def test_only_the_learner_and_what_makes_the_models_write_artifacts() -> None:
    writers = {name for name, one in SERVICES.items() if "artifacts:/artifacts" in one.get("volumes", [])}
    assert {name.split("-")[0] for name in writers} == {"learner", "prepare"}


def test_whoever_needs_the_queue_waits_for_it() -> None:
    for name, service in SERVICES.items():
        if "POTSTILL_REDIS_URL" in service.get("environment", {}):
            assert service["depends_on"]["valkey"] == {"condition": "service_healthy"}, name
    assert "healthcheck" in SERVICES["valkey"]


def test_what_is_mounted_from_the_repository_is_there() -> None:
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./") and not source.startswith(("./deploy/prometheus", "./deploy/grafana")):
                assert (ROOT / source).exists(), (name, source)


def test_prometheus_looks_for_every_process() -> None:
    config = yaml.safe_load((ROOT / "deploy/compose/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    names = job["dns_sd_configs"][0]["names"]
    assert {name.removesuffix("-inside") for name in names} == set(SETTINGS)
    scraper = set(SERVICES["prometheus"]["networks"])
    for profile in ("cpu", "gpu"):
        for name in names:
            # On one network with Prometheus and no more, or a process would be counted once for each.
            shared = [
                network
                for service, one in variants(profile).items()
                for network, aliases in _aliases_by_network(service, one).items()
                if name in aliases and network in scraper
            ]
            assert len(shared) == 1, (name, shared)


def test_the_learner_keeps_its_name() -> None:
    names = {loaded("learner", SERVICES[name]["environment"]).owner for name in ("learner-cpu", "learner-gpu")}  # type: ignore[attr-defined]
    assert names == {"learner-0"}
    assert LearnerSettings.model_fields["learner_name"].default == ""


def test_images_from_elsewhere_are_pinned_by_digest() -> None:
    for name, service in SERVICES.items():
        if not service["image"].startswith("potstill/"):
            assert re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", service["image"]), name


def test_our_images_are_those_that_are_built() -> None:
    version = re.search(r'^version = "(.*)"', Path(ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    for name, service in OURS.items():
        process = process_of(name)
        variant = {"cpu": "-cpu", "gpu": "-cuda", process: ""}[name.split("-")[-1]]
        assert service["image"] == f"potstill/{process}:{version[1]}{variant}"
