"""`python -m services.teacher`."""

from __future__ import annotations

import os
import signal

from potstill.local.threads import QUIET_WAITING
from potstill.service.serve import fail, serve, settings_or_exit
from potstill.service.settings import SettingsError
from services.teacher.app import build
from services.teacher.settings import TeacherSettings


def main() -> None:
    # Read when torch is loaded, by `build`: threads that spin while they wait cost most of the speed on shared cores.
    for name, value in QUIET_WAITING.items():
        os.environ.setdefault(name, value)
    settings = settings_or_exit(TeacherSettings)
    try:
        app = build(settings, on_death=lambda: signal.raise_signal(signal.SIGTERM))
    except SettingsError as error:
        fail(str(error))
    serve(app, settings)


if __name__ == "__main__":
    main()
