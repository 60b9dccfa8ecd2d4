"""`python -m services.teacher`."""

from __future__ import annotations

from potstill.service.serve import fail, serve, settings_or_exit
from potstill.service.settings import SettingsError
from services.teacher.app import build
from services.teacher.settings import TeacherSettings


def main() -> None:
    settings = settings_or_exit(TeacherSettings)
    try:
        app = build(settings)
    except SettingsError as error:
        fail(str(error))
    serve(app, settings)


if __name__ == "__main__":
    main()
