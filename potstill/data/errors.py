"""Why a data set cannot be used."""

from __future__ import annotations

FILE = "file"  # the field of errors that are about the whole file


class DataError(ValueError):
    """A data file cannot be used. `field` is a column or `file`; `message` names the file, the row and the fix."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self.message = field, message
