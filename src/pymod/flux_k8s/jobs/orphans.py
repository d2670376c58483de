# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Workflows in our naming scheme that no job claims.

Either the plugin has not reported the job yet, or the job has ended while the module
was away. In the second case only the module can tear the Workflow down, and tell what
became of data that was to go out after the job's end.
"""

from __future__ import annotations

import errno
import json
import syslog
from typing import Callable, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.controller import Controller, Options, TryAgain
from flux_k8s.control.coroutines import call
from flux_k8s.dws.workflowview import FINALIZER
from flux_k8s.jobs.isolation import JobScope
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.outage import Outage
from flux_k8s.jobs.reports import DataReports
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.ports import WORKFLOW, RpcError
from flux_k8s.reasons import EPILOG_TIMEOUT, FATAL, Reason
from flux_k8s.rfc.jobid import f58, workflow_name

LOOK_AGAIN = 300.0
"""Seconds until a job that has not ended, and that nobody reports on, is looked at
again."""


def given_up(eventlog: str, owner: int) -> bool:
    """Whether a job's epilog was given up, as its eventlog (RFC 18) says. The eventlog
    says so even if neither the plugin nor the module was there.

    Args:
        owner: the user ID of the instance owner: an exception of a guest does not
            count.
    """
    # Not splitlines(): that would split at separators that JSON allows in strings.
    for line in eventlog.split("\n"):
        if EPILOG_TIMEOUT not in line:
            continue
        try:
            event = json.loads(line)
            context = event["context"]
            found = event["name"], context["type"], context["severity"]
            by = context.get("userid", owner)
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if found == ("exception", EPILOG_TIMEOUT, FATAL) and by in (owner, 0):
            return True
    return False


class Orphans:
    """Tears down the Workflows that no job claims and whose job has ended.

    Args:
        release_share: frees the share of a job, which the scheduler takes back.
    """

    def __init__(
        self,
        context: Context,
        jobs: JobTable,
        outage: Outage,
        scope: JobScope,
        release_share: Callable[[WorkflowInfo], None],
    ) -> None:
        self._flux = context.flux
        self._settings = context.settings
        self._jobs = jobs
        self._outage = outage
        self._release_share = release_share
        self._data = DataReports(context.flux)
        self._checked = False
        self._failing = False
        self._not_ended: set[int] = set()
        self._controller = Controller[int](
            context.flux,
            self._release_if_ended,
            self._failed,
            Options[int](expected=(TryAgain,), scope=scope.run, bind=scope.bind),
        )

    def stop(self) -> None:
        """Check nothing any more."""
        self._controller.stop()

    def check(self) -> None:
        """Check all unclaimed Workflows, once all Workflows and all jobs are known."""
        if not (self._outage.has_listed(WORKFLOW) and self._jobs.complete):
            return
        self._checked = True
        for jobid in tuple(self._jobs.unclaimed):
            self.check_ended(jobid)

    def added(self, jobid: int) -> None:
        """The watch has shown a new Workflow that no job claims. Until :meth:`check`
        has checked all Workflows, the plugin may still report its job."""
        if self._checked:
            self.check_ended(jobid)

    def check_ended(self, jobid: int) -> None:
        """Find out whether a job that the plugin does not hold has ended."""
        self._not_ended.discard(jobid)
        self._controller.add(jobid)

    async def _release_if_ended(self, jobid: int) -> Optional[float]:
        """Release the storage of a job that has ended, or whose epilog was given up
        according to its eventlog. Returns the seconds until a job that has not ended is
        looked at again: the plugin, which does not hold it, will not report its end.

        Raises:
            TryAgain: a module of Flux does not answer, or cannot tell.
        """
        # The plugin does not hold the job: it has released such a one.
        released = await self._has_released_nodes(jobid)
        ended = released or await call(self._flux.job_ended, jobid)
        if ended is None:
            raise TryAgain(RpcError(errno.EAGAIN, "job-list does not answer"))
        eventlog = await self._eventlog(jobid)
        aborted = given_up(eventlog, self._settings.owner)
        self._failing = False
        if jobid in self._not_ended and not self._is_stuck(jobid):
            self._not_ended.discard(jobid)
            return None  # the plugin holds the job after all
        if not (ended or aborted):
            if not self._is_stuck(jobid):
                return None
            self._not_ended.add(jobid)
            return LOOK_AGAIN
        self._not_ended.discard(jobid)
        if self._may_be_of_others(jobid) and workflow_name(jobid) not in eventlog:
            self._flux.log(
                syslog.LOG_NOTICE,
                f"Workflow {workflow_name(jobid)} is not touched: it has not the label"
                " of this instance (rabbit.instance), and no job of this one had it",
                Reason.NAME_TAKEN,
            )
            return None
        if released and not aborted:
            self._follow(jobid)
        else:
            self._release(jobid, aborted)
        return None

    async def _has_released_nodes(self, jobid: int) -> bool:
        """Whether a job may have ended before its data was out. The data is not given
        up, also where the Workflow has lost the annotation that says so.

        Raises:
            TryAgain: a module of Flux does not answer.
        """
        job, found = self._jobs.get(jobid), self._jobs.unclaimed.get(jobid)
        if job is not None:
            seen = job.info.nodes_released
        else:
            seen = found is not None and found[0].nodes_released
        if seen:
            return True
        try:
            return await self._data.ended_before(jobid)
        except RpcError as error:
            raise TryAgain(error) from error

    def _follow(self, jobid: int) -> None:
        """Take DataOut and Teardown of a job that has ended to their end."""
        job = self._jobs.obtain(jobid, Goal.RELEASED)
        job.info.want_data_out()
        self._release_share(job.info)
        self._jobs.changed(job)

    def _may_be_of_others(self, jobid: int) -> bool:
        """Whether a Workflow without a job may be that of another Flux instance, which
        gave its Workflows no label yet, or has a name that this one had."""
        found = self._jobs.unclaimed.get(jobid)
        identity = self._settings.identity
        return found is not None and not identity.owns(found[0].instance)

    async def _eventlog(self, jobid: int) -> str:
        """The eventlog of a job; "" for a job that was purged."""
        payload = {"id": jobid, "keys": ["eventlog"], "flags": 0}
        try:
            answer = await call(self._flux.rpc, "job-info.lookup", payload)
        except RpcError as error:
            if error.errnum != errno.ENOENT:
                raise TryAgain(error) from error
            return ""
        return str(answer.get("eventlog"))

    def _failed(self, jobid: int, again: TryAgain) -> None:
        """Log an error once: it concerns many jobs."""
        if not self._failing:
            self._failing = True
            text = f"cannot tell whether {f58(jobid)} has ended: {again.error}"
            text = f"{text}; trying again"
            self._flux.log(syslog.LOG_WARNING, text, Reason.FLUX_ERROR)

    def _release(self, jobid: int, aborted: bool) -> None:
        """Release the storage of a job that waits for nothing any more."""
        if jobid not in self._jobs:
            if not self._is_stuck(jobid):
                return
            self._flux.log(
                syslog.LOG_NOTICE,
                f"{f58(jobid)}: tearing down a Workflow whose job has ended",
                Reason.ORPHAN,
            )
        job = self._jobs.obtain(jobid, Goal.RELEASED)
        job.info.want_released(abandoned=True, aborted=aborted, waits=False)
        self._release_share(job.info)
        self._jobs.changed(job)

    def _is_stuck(self, jobid: int) -> bool:
        """Whether the job has an unclaimed Workflow that only the module can tear
        down. Nothing holds one that is being deleted without a finalizer of ours: a job
        of the same ID that becomes known has to wait for the end of that."""
        found = self._jobs.unclaimed.get(jobid)
        if found is None:
            return False
        view, _ = found
        return not view.deleting or FINALIZER in view.finalizers
