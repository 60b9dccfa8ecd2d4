"""How a job ends other than by success."""

from __future__ import annotations


class JobError(Exception):
    """The job cannot go on. `code` is stable; `detail` is one sentence that says what to do."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail


class Interruption(Exception):  # noqa: N818 - not an error: someone wants the trainer to stop here
    """The trainer must leave its loop at this point."""


class JobCancelled(Interruption):
    """A person cancelled the job: nothing of it is kept going."""


class JobPaused(Interruption):
    """A person paused the job: it is resumed later, perhaps by another lane."""


class LaneStopping(Interruption):
    """This process was asked to end: another lane resumes the job."""


class LeaseLost(Interruption):
    """Another lane may hold the job: write nothing more."""
