"""How a job ends other than by success."""

from __future__ import annotations

import torch


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


class RanksLost(LaneStopping):
    """Another process of this student is gone: all of them begin again, and the job goes on from its checkpoint."""


class LeaseLost(Interruption):
    """Another lane may hold the job: write nothing more."""


def job_error(error: Exception) -> JobError:
    """Why a job failed, in the words of its record."""
    if isinstance(error, JobError):
        return error
    if isinstance(error, torch.OutOfMemoryError):
        advice = "lower training.micro_batch_tokens, set training.gradient_checkpointing, or use student.lora"
        return JobError("out_of_memory", f"the learner's device has too little memory: {advice}")
    if isinstance(error, OSError):
        return JobError("storage", f"the artifacts could not be read or written: {error}")
    return JobError("internal", f"{type(error).__name__}: {error}; the learner's log has the traceback")
