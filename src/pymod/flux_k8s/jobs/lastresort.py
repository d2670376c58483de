# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Lets a job go that waits for its storage to be released, and for which the service
cannot work any more: unexpected exceptions come again and again."""

from __future__ import annotations

from flux_k8s.control.controller import Controller, Options
from flux_k8s.jobs.datareports import DataReports
from flux_k8s.jobs.inuse import InUse
from flux_k8s.jobs.isolation import JobScope, left_behind
from flux_k8s.jobs.jobexception import DWS, FATAL, WARNING
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.losses import data_loss
from flux_k8s.jobs.pluginrequests import request_plugin
from flux_k8s.jobs.workflowinfo import Goal
from flux_k8s.jobs.workflowrequests import FAILURES
from flux_k8s.ports import Flux
from flux_k8s.text import NOTE, printable


class LastResort:
    """Lets jobs go, and says what they lose."""

    def __init__(
        self, flux: Flux, jobs: JobTable, in_use: InUse, scope: JobScope
    ) -> None:
        self._flux = flux
        self._jobs = jobs
        self._in_use = in_use
        self._data = DataReports(flux)
        self._controller = Controller[int](
            flux,
            self._let_go,
            options=Options[int](expected=FAILURES, scope=scope.run, bind=scope.bind),
        )

    def stop(self) -> None:
        """Let no job go any more."""
        self._controller.stop()

    def check(self, jobid: int) -> None:
        """Let a job go, once, if it was given up."""
        job = self._jobs.get(jobid)
        if job is None or not job.faults.given_up or job.faults.let_go:
            return
        if job.info.goal is Goal.RELEASED and not job.info.released:
            job.faults.let_go = True
            self._controller.add(jobid)

    async def _let_go(self, jobid: int) -> None:
        """Release a job's epilog, when the nodes that may still mount its storage are
        drained, and it is recorded what became of its data.

        Raises:
            KubeError, RpcError: it is to be tried again.
        """
        job = self._jobs.get(jobid)
        if job is None:
            return
        loss = data_loss(job.info)
        self._report(job, loss)
        await self._in_use.drain_mounted(job.info, "the dws module failed")
        note = job.faults.note
        await self._data.record(job.info, f"{note}; {loss}" if loss else "")
        job.info.data_reported = True
        await request_plugin(self._flux, "epilog-remove", {"id": jobid})
        job.info.released = True

    def _report(self, job: Job, loss: str) -> None:
        """Raise an exception, fatal if data is lost."""
        if job.faults.reported:
            return
        job.faults.reported = True
        lost = loss if job.info.ran else ""
        severity = FATAL if lost and not job.info.failed else WARNING
        text = "; ".join(filter(None, (left_behind(job.info), lost, job.faults.note)))
        self._flux.raise_exception(job.info.jobid, DWS, severity, printable(text, NOTE))
