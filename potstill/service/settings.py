"""Settings of every process: `POTSTILL_*` variables, or a YAML file named by `POTSTILL_SETTINGS`."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

MIN_TOKEN_LENGTH = 16
DEFAULT_SECRETS = frozenset({"changeme", "change-me", "secret", "password", "potstill", "token", "default"})


class SettingsError(ValueError):
    """A setting is missing or wrong; the text is one line a person can act on."""


class ServiceSettings(BaseSettings):
    """What every process shares; each service adds its own fields in a subclass."""

    model_config = SettingsConfigDict(env_prefix="POTSTILL_", extra="ignore")

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8080, ge=0, le=65535, description="Port to listen on.")
    auth: Literal["on", "off"] = Field(default="on", description="`off` is accepted on a loopback address only.")
    token: SecretStr | None = Field(default=None, description="Bearer token shared by the processes of one deployment.")
    artifacts: Path = Field(default=Path("artifacts"), description="Root of policies, checkpoints and journals.")
    redis_url: str = Field(default="redis://127.0.0.1:6379/0", description="Redis 7 or Valkey.")
    lane: str = Field(default="default", pattern=r"^[a-z0-9-]{1,40}$", description="Learner and the engines it feeds.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least level logged.")
    log_format: Literal["json", "console"] = Field(
        default="json", description="`json` is one object a line; `console` is for people."
    )
    max_body_bytes: int = Field(default=64 * 2**20, gt=0, description="A larger request is refused with 413.")
    request_seconds: float = Field(default=600.0, gt=0, description="Deadline of one request.")
    drain_seconds: int = Field(default=20, ge=0, description="Time that requests in flight get after SIGTERM.")

    @model_validator(mode="after")
    def _auth_is_safe(self) -> ServiceSettings:
        if self.auth == "off":
            if not _is_loopback(self.host):
                raise ValueError(f"POTSTILL_AUTH=off is accepted on a loopback address only, not on {self.host}")
            return self
        token = self.token.get_secret_value() if self.token else ""
        if not token:
            raise ValueError("POTSTILL_TOKEN is not set: give all processes one random token (openssl rand -hex 32)")
        if token.lower() in DEFAULT_SECRETS or len(token) < MIN_TOKEN_LENGTH:
            raise ValueError(
                f"POTSTILL_TOKEN is a default or shorter than {MIN_TOKEN_LENGTH} characters: set a random one"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        path = os.environ.get("POTSTILL_SETTINGS")
        sources: tuple[PydanticBaseSettingsSource, ...] = (init_settings, env_settings)
        return (*sources, YamlConfigSettingsSource(settings_cls, yaml_file=path)) if path else sources

    @property
    def bearer(self) -> str | None:
        """The token to send and to expect; None when authentication is off."""
        return self.token.get_secret_value() if self.auth == "on" and self.token else None


S = TypeVar("S", bound=ServiceSettings)


def load_settings(kind: type[S]) -> S:
    """Read settings of this kind. Raises SettingsError with one line per problem."""
    try:
        return kind()
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, item['loc'])) or 'settings'}: {item['msg']}" for item in error.errors()]
        raise SettingsError("; ".join(lines)) from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
