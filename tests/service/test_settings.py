from __future__ import annotations

from pathlib import Path

import pytest

from potstill.service.settings import ServiceSettings, SettingsError, load_settings

GOOD = "0123456789abcdef0123"


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> ServiceSettings:
    for name, value in variables.items():
        monkeypatch.setenv(f"POTSTILL_{name}", value)
    return load_settings(ServiceSettings)


def test_a_random_token_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, TOKEN=GOOD, HOST="0.0.0.0").bearer == GOOD


@pytest.mark.parametrize("token", ["", "changeme", "short"])
def test_no_start_on_a_missing_or_default_secret(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    with pytest.raises(SettingsError, match="POTSTILL_TOKEN"):
        load(monkeypatch, TOKEN=token)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_auth_may_be_off_on_loopback(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    assert load(monkeypatch, AUTH="off", HOST=host).bearer is None


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "example.org"])
def test_auth_may_not_be_off_elsewhere(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    with pytest.raises(SettingsError, match="loopback"):
        load(monkeypatch, AUTH="off", HOST=host)


def test_a_file_gives_settings_and_a_variable_overrides_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(f"token: {GOOD}\nlane: blue\nport: 9000\n")
    settings = load(monkeypatch, SETTINGS=str(path), PORT="9001")
    assert (settings.lane, settings.port, settings.bearer) == ("blue", 9001, GOOD)
