"""The loop of a learner process: claim a job, run it, say how it ended."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import torch
from pydantic import ValidationError

from learner import metrics
from learner.channel import Holder, JobChannel
from learner.control import Control, Heartbeat
from learner.errors import JobCancelled, JobError, JobPaused, LaneStopping, LeaseLost, job_error
from learner.link import Link, LinkTimeoutError
from learner.ranks import Ranks
from learner.settings import LearnerSettings
from learner.shard import free_memory
from learner.storage import write_file
from learner.trainer import Trainer, TrainerOptions
from potstill.broker import Broker
from potstill.broker.jobs import JobRecord, JobStore, LeaseLostError
from potstill.contracts.job import JobSpec
from potstill.contracts.state import JobState
from potstill.service.logs import get_logger

log = get_logger("learner")


class Lane:
    """One lane: it works on one job at a time until it is stopped."""

    def __init__(self, settings: LearnerSettings, heartbeat: Heartbeat, ranks: Ranks, device: torch.device) -> None:
        self._settings, self._heartbeat, self._ranks = settings, heartbeat, ranks
        self._stopping = threading.Event()
        self._control: Control | None = None
        self._options = TrainerOptions(
            device=device,
            reissue_seconds=settings.learner_reissue_seconds,
            samples_kept=settings.learner_samples_kept,
        )

    def stop(self) -> None:
        """Leave the loop at the next check; the job is released for another lane."""
        self._stopping.set()
        if self._control is not None:
            self._control.stop()

    def run(self) -> None:
        """Work until stopped, or until the ranks of this learner are no longer at the same place."""
        self._link = Link()
        self._broker = self._link.call(_connect(self._settings.redis_url))
        log.info("lane is up", lane=self._settings.lane, owner=self._settings.owner, device=str(self._options.device))
        try:
            while not (self._stopping.is_set() or self._ranks.broken):
                self._heartbeat.beat()
                if not self._work_on_next():
                    self._stopping.wait(self._settings.learner_poll_seconds)
        except LaneStopping:
            pass  # asked to end while it waited for a job
        finally:
            self._ranks.dismiss()
            self._link.call(self._broker.close(), timeout=1.0)
            self._link.close()

    def _work_on_next(self) -> bool:
        """Claim a job and work on it; False when there is none."""
        settings = self._settings
        # A new incarnation for every claim: a claim whose answer was lost is simply made again.
        holder = Holder(settings.lane, settings.owner, uuid.uuid4().hex, settings.learner_lease_seconds)
        claim = JobStore(self._broker).claim(holder.lane, holder.owner, holder.incarnation, holder.lease_seconds)
        self._control = control = Control(holder.lease_seconds, self._heartbeat)
        record = self._link.call(claim, check=self._check_idle)
        if record is None:
            return False
        control.renewed_now()
        if self._stopping.is_set():
            control.stop()
        channel = JobChannel(self._link, self._broker, record.id, holder, control)
        renewal = self._link.start(channel.keep_lease())
        metrics.working.set(1)
        log.info("job claimed", job=record.id)
        try:
            outcome = self._run_job(record, channel, control)
        except LeaseLostError as error:
            log.warning("another lane has the job", job=record.id, reason=str(error))
            outcome = "lost"
        except LinkTimeoutError as error:
            log.warning("the job's last words did not arrive; its lease will run out", job=record.id, reason=str(error))
            outcome = "unsaid"
        finally:
            renewal.cancel()
            metrics.working.set(0)
            free_memory()
        metrics.jobs.labels(outcome).inc()
        log.info("job left this lane", job=record.id, outcome=outcome)
        return True

    def _check_idle(self) -> None:
        self._heartbeat.beat()
        if self._stopping.is_set():
            raise LaneStopping("the process was asked to end")

    def _run_job(self, record: JobRecord, channel: JobChannel, control: Control) -> str:
        """Run a job to wherever it goes; returns the outcome."""
        trainer: Trainer | None = None
        try:
            trainer = self._trainer(record, channel, control)
            result = trainer.run()
            channel.end(JobState.SUCCEEDED, result=result)
        except JobPaused:
            if trainer is not None:
                trainer.save_before_pause()
            channel.release()
            return "paused"
        except JobCancelled:
            channel.end(JobState.CANCELLED)
            return "cancelled"
        except LaneStopping:
            channel.release()
            return "released"
        except LeaseLost as error:
            log.warning("lease lost", job=record.id, reason=str(error))
            return "lost"
        except (LinkTimeoutError, LeaseLostError):
            raise
        except Exception as error:
            log.error("job failed", job=record.id, exc_info=error)
            reason = job_error(error)
            channel.end(JobState.FAILED, error={"code": reason.code, "detail": reason.detail})
            return "failed"
        finally:
            if trainer is not None:
                trainer.close()
        return "succeeded"

    def _trainer(self, record: JobRecord, channel: JobChannel, control: Control) -> Trainer:
        folder = Path(self._settings.artifacts).absolute() / "jobs" / record.id
        folder.mkdir(parents=True, exist_ok=True)
        try:
            spec = JobSpec.model_validate(record.spec)
        except ValidationError as error:
            raise JobError("invalid_spec", f"this learner does not understand the job: {error}") from error
        write_file(folder / "spec.json", spec.model_dump_json(by_alias=True, indent=2).encode())
        return Trainer(record.id, spec, folder, channel, control, self._options, self._ranks)


async def _connect(url: str) -> Broker:
    return Broker.connect(url, patient=True)
