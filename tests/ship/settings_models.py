"""Which settings each process reads: what a deployment sets must be among them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from unittest.mock import patch

from learner.settings import LearnerSettings
from potstill.service.settings import ServiceSettings, load_settings
from services.gateway.settings import GatewaySettings
from services.rollout.settings import RolloutSettings
from services.student.settings import StudentSettings
from services.teacher.settings import TeacherSettings
from services.verifier.settings import VerifierSettings

PREFIX = "POTSTILL_"
SETTINGS: dict[str, type[ServiceSettings]] = {
    "gateway": GatewaySettings,
    "rollout": RolloutSettings,
    "student": StudentSettings,
    "teacher": TeacherSettings,
    "verifier": VerifierSettings,
    "learner": LearnerSettings,
}
# What an image sets for all of them.
IMAGE_ENVIRONMENT = {"POTSTILL_HOST": "0.0.0.0", "POTSTILL_PORT": "8080", "POTSTILL_ARTIFACTS": "/artifacts"}


def unknown_variables(process: str, names: set[str]) -> set[str]:
    """Those `POTSTILL_*` names that the process would not read; pydantic ignores them without a word."""
    known = {PREFIX + field.upper() for field in SETTINGS[process].model_fields} | {PREFIX + "SETTINGS"}
    return {name for name in names if name.startswith(PREFIX)} - known


def loaded(process: str, environment: Mapping[str, str]) -> ServiceSettings:
    """The settings as the process would load them. Raises SettingsError."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    with patch.dict(os.environ, own | IMAGE_ENVIRONMENT | dict(environment), clear=True):
        return load_settings(SETTINGS[process])
