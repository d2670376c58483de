# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Data that jobs wait for, and that nothing is left to be reported of.

A job that ended before its data was out has a Workflow until that is reported. If the
Workflow is deleted while no service is there to see it, no input of the service is
about the job any more. The jobs that depend on its data would wait for ever, so the
plugin asks for such a report.
"""

from __future__ import annotations

from typing import Optional

from flux_k8s.control.controller import Controller, Options, TryAgain
from flux_k8s.jobs.datareports import DataReports
from flux_k8s.jobs.isolation import JobScope
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.outage import Outage
from flux_k8s.jobs.workflowinfo import Goal
from flux_k8s.ports import WORKFLOW, Flux, RpcError

LOOK_AGAIN = 300.0
"""Seconds until a job that has a Workflow is looked at again."""


class Unreported:
    """Has it reported what became of data whose Workflow is gone."""

    def __init__(
        self, flux: Flux, jobs: JobTable, outage: Outage, scope: JobScope
    ) -> None:
        self._jobs = jobs
        self._outage = outage
        self._data = DataReports(flux)
        self._asked: set[int] = set()
        self._controller = Controller[int](
            flux,
            self._report,
            lambda jobid, again: None,
            Options[int](expected=(TryAgain,), scope=scope.run, bind=scope.bind),
        )

    def stop(self) -> None:
        """Report nothing any more."""
        self._controller.stop()

    def ask(self, jobid: int) -> None:
        """Jobs wait for the data of a job that ended before it was out. A job that has
        a Workflow is reported of when that has come to its end."""
        self._asked.add(jobid)
        self.check()

    def check(self) -> None:
        """Look at all that was asked for, once all Workflows and all jobs are known."""
        if not (self._outage.has_listed(WORKFLOW) and self._jobs.complete):
            return
        for jobid in self._asked:
            self._controller.add(jobid)
        self._asked.clear()

    async def _report(self, jobid: int) -> Optional[float]:
        """Have the data of a job without a Workflow reported as lost, unless a report
        has been made: then that is made again. Returns the seconds until a job with a
        Workflow is looked at again: that may go without a report.

        Raises:
            TryAgain: a module of Flux does not answer.
        """
        if self._is_known(jobid):
            return LOOK_AGAIN
        try:
            if await self._data.repeat(jobid):
                return None
        except RpcError as error:
            raise TryAgain(error) from error
        if self._is_known(jobid):
            return LOOK_AGAIN
        job = self._jobs.obtain(jobid, Goal.RELEASED)
        job.info.want_data_out()
        job.info.uncertain = True  # so that it is looked for before that is said
        self._jobs.changed(job)
        return None

    def _is_known(self, jobid: int) -> bool:
        return jobid in self._jobs or jobid in self._jobs.unclaimed
