"""The sandboxes of one worker: started, and attacked before they are trusted."""

from __future__ import annotations

import sys

from services.verifier.sandbox.runner import Sandbox, SandboxFailedError
from services.verifier.settings import SandboxOptions


class Sandboxes:
    """One for programs; one for opaque test code, started when it is first needed."""

    def __init__(self, options: SandboxOptions, programs: Sandbox) -> None:
        self._options, self.programs = options, programs
        self._checks: Sandbox | None = None
        self.layers, self.missing = programs.layers, programs.missing

    @property
    def checks(self) -> Sandbox:
        if self._checks is None:
            self._checks = Sandbox.start(self._options.user_id)
        return self._checks


def start(options: SandboxOptions) -> Sandboxes:
    """Raises SandboxFailedError."""
    if not sys.platform.startswith("linux"):
        raise SandboxFailedError("programs can be confined on Linux only")
    return Sandboxes(options, Sandbox.start(options.user_id))
