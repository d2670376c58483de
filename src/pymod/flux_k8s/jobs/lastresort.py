# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Releases the epilog of a job for which the service cannot work any more: unexpected
exceptions come again and again."""

from __future__ import annotations

import syslog

from flux_k8s.jobs.inuse import InUse
from flux_k8s.jobs.isolation import describe, left_behind
from flux_k8s.jobs.jobtable import Job
from flux_k8s.jobs.losses import data_loss
from flux_k8s.jobs.plugin import request_plugin
from flux_k8s.jobs.reports import DataReports
from flux_k8s.jobs.workflowinfo import Goal
from flux_k8s.jobs.workflowrequests import FAILURES
from flux_k8s.ports import Flux
from flux_k8s.reasons import DWS, FATAL, WARNING, Note, Reason
from flux_k8s.text import NOTE, printable


class LastResort:
    """Releases the epilogs of jobs that were given up, and reports what they lose."""

    def __init__(self, flux: Flux, in_use: InUse) -> None:
        self._flux = flux
        self._in_use = in_use
        self._data = DataReports(flux)

    async def release(self, job: Job) -> None:
        """Release a job's epilog, when the nodes that may still mount its storage are
        drained, and it is recorded what became of its data. Of these, what ends in an
        unexpected exception as well is left out: the job does not wait for it.

        Raises:
            StepError: it is to be tried again.
        """
        if job.info.goal is not Goal.RELEASED or job.info.released:
            return
        for part in (self._drain, self._report, self._record):
            try:
                await part(job)
            except FAILURES:
                raise
            except Exception as error:
                text = f"{job.info.f58}: internal error: {describe(error)}"
                self._flux.log(syslog.LOG_CRIT, text, Reason.SERVICE_FAULT)
        await request_plugin(self._flux, "epilog-remove", {"id": job.info.jobid})
        job.info.released = True

    async def _drain(self, job: Job) -> None:
        note = Note("the dws module failed", Reason.SERVICE_FAULT)
        await self._in_use.drain_mounted(job.info, note)

    async def _report(self, job: Job) -> None:
        """Raise an exception once, fatal if data is lost."""
        if job.faults.reported:
            return
        loss = data_loss(job.info) if job.info.ran else None
        severity = FATAL if loss is not None and not job.info.failed else WARNING
        lost = "" if loss is None else loss.text
        text = "; ".join(filter(None, (left_behind(job.info), lost, job.faults.note)))
        note, reason = printable(text, NOTE), Reason.SERVICE_FAULT
        self._flux.raise_exception(job.info.jobid, DWS, severity, note, reason)
        job.faults.reported = True

    async def _record(self, job: Job) -> None:
        loss = data_loss(job.info)
        if loss is not None:
            loss = Note(f"{job.faults.note}; {loss.text}", Reason.SERVICE_FAULT)
        await self._data.record(job.info, loss)
        job.info.data_reported = True
