# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reports the loss of data whose Workflow was deleted unseen, when jobs wait for it.

A job that ended before its data was out has a Workflow until that is reported. If the
Workflow is deleted while no service is there to see it, no input of the service is
about the job any more. The jobs that depend on its data would wait for ever, so the
plugin asks for such a report.
"""

from __future__ import annotations

import syslog

from flux_k8s.control.controller import Controller, Options, TryAgain
from flux_k8s.jobs.isolation import JobScope
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.outage import Outage
from flux_k8s.jobs.reports import DataReports
from flux_k8s.jobs.workflowinfo import Goal
from flux_k8s.ports import WORKFLOW, Flux, RpcError
from flux_k8s.reasons import Reason
from flux_k8s.rfc.jobid import f58


class Unreported:
    """Adds the jobs to the table that the plugin asks about, and that have no Workflow
    any more, so that the loss of their data is reported."""

    def __init__(
        self, flux: Flux, jobs: JobTable, outage: Outage, scope: JobScope
    ) -> None:
        self._flux = flux
        self._jobs = jobs
        self._outage = outage
        self._data = DataReports(flux)
        self._asked: set[int] = set()
        self._failing = False
        self._controller = Controller[int](
            flux,
            self._report,
            self._failed,
            Options[int](expected=(TryAgain,), scope=scope.run, bind=scope.bind),
        )

    def stop(self) -> None:
        """Report nothing any more."""
        self._controller.stop()

    def ask(self, jobid: int) -> None:
        """Jobs wait for the data of a job that ended before it was out."""
        self._asked.add(jobid)
        self.check(jobid)

    def check_all(self) -> None:
        """Check all jobs that were asked about."""
        for jobid in tuple(self._asked):
            self.check(jobid)

    def check(self, jobid: int) -> None:
        """See to the report on a job if it was asked about, once all Workflows and all
        jobs are known. The data of a job in the table is reported on when its Workflow
        has come to its end, and one whose Workflow no job claims is about to be in the
        table; but the Workflow may be deleted before."""
        if jobid not in self._asked:
            return
        if not (self._outage.has_listed(WORKFLOW) and self._jobs.complete):
            return
        if jobid in self._jobs.unclaimed:
            return
        self._asked.remove(jobid)
        job = self._jobs.get(jobid)
        if job is None:
            self._controller.add(jobid)
        else:
            # Its Workflow may have lost the annotation.
            job.info.nodes_released = True
            self._jobs.changed(job)

    async def _report(self, jobid: int) -> None:
        """Have the data of a job without a Workflow reported as lost, unless a report
        has been made: then that is made again. Of a job that did not end before its
        data was out, as of one that has not ended, none is made here.

        Raises:
            TryAgain: a module of Flux does not answer.
        """
        try:
            reported = await self._data.repeat(jobid)
            owed = not reported and await self._data.ended_before(jobid)
        except RpcError as error:
            raise TryAgain(error) from error
        self._failing = False
        if not owed or jobid in self._jobs:
            return
        job = self._jobs.obtain(jobid, Goal.RELEASED)
        job.info.want_data_out()
        job.info.doubtful = True  # so that it is looked for before that is said
        self._jobs.changed(job)

    def _failed(self, jobid: int, again: TryAgain) -> None:
        """Log an error once: it concerns many jobs."""
        if not self._failing:
            self._failing = True
            text = f"cannot tell what became of the data of {f58(jobid)}: {again.error}"
            text = f"{text}; trying again"
            self._flux.log(syslog.LOG_WARNING, text, Reason.FLUX_ERROR)
