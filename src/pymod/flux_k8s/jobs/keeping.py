# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Keeps the storage of a job that could end: for nodes that have not unmounted
(``rabbit.unmount_failure``), or for data that was not copied out
(``rabbit.keep_failed``).

The job ends meanwhile, where it may: an annotation of the Workflow says so, and its
storage is kept from others. The steps may be repeated without harm, as all of
:mod:`flux_k8s.jobs.steps`.
"""

from __future__ import annotations

from flux_k8s.config.context import Context
from flux_k8s.dws.workflowview import WorkflowView
from flux_k8s.errors import StorageUnavailable
from flux_k8s.jobs.inuse import InUse
from flux_k8s.jobs.jobrows import kept_until
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.reports import DataReports
from flux_k8s.jobs.step import FindWriters, KeepFailed, LetNodesGo
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import WorkflowRequests
from flux_k8s.rabbits.availability import Availability
from flux_k8s.reasons import Reason
from flux_k8s.rfc import hostlist


class Keeping:
    """Keeps the storage of jobs."""

    def __init__(
        self,
        context: Context,
        machine: Availability,
        jobs: JobTable,
        workflows: WorkflowRequests,
        in_use: InUse,
        data: DataReports,
    ) -> None:
        self._clock = context.clock
        self._settings = context.settings
        self._free_storage = machine.free_storage
        self._workflows = workflows
        self._in_use = in_use
        self._data = data
        self._jobs = jobs

    def may_end(self, view: WorkflowView) -> bool:
        """Whether a job may end before its storage is gone. A container runs on, and
        of storage that the service cannot see, others could not be kept off.

        Raises:
            StorageUnavailable: it is not known yet whether the service can see it.
        """
        if not (self._free_storage.counted or view.runs_containers):
            raise StorageUnavailable("Servers are not listed yet", Reason.NOT_READY)
        return self._free_storage.listed and not view.runs_containers

    async def find_writers(self, info: WorkflowInfo, step: FindWriters) -> None:
        """Find the nodes that could still write to the storage of a job. If there are
        any, mark the Workflow: the other nodes may go to other jobs."""
        view, now = info.view, self._clock.now()
        assert view is not None
        passed_over = view.forced or info.failure_tolerance > 0 or not view.complete
        if not (passed_over or await self._in_use.passed_over(info)):
            info.writers, info.still_mounted, info.unmounted = (), (), True
            return
        writers, overdue = await self._in_use.find_writers(info, step.note, step.failed)
        if writers and (overdue or not view.kept_for):
            # A job that was aborted has ended.
            ends = not info.released and self.may_end(view)
            if not info.released:
                names = hostlist.encode(writers)
                await self._data.note_kept(info, names, kept_until(names))
            kept_for = (*view.kept_for_nodes, *(overdue or writers))
            await self._workflows.keep(info, kept_for, ends)
        info.writers, info.writers_at = writers, now

    async def let_nodes_go(self, info: WorkflowInfo, step: LetNodesGo) -> None:
        """Drain the nodes that have not unmounted, and mark the Workflow: the others
        may go to other jobs."""
        assert info.view is not None
        ends = self.may_end(info.view)
        await self._in_use.drain_mounted(info, step.note)
        if ends:
            await self._workflows.keep(info, info.still_mounted or (), ends)
        else:
            info.unmounted = True

    async def keep_failed(self, info: WorkflowInfo, step: KeepFailed) -> None:
        """Keep the storage of a job whose data could not be copied out, where the job
        can end before it is gone, or has."""
        view, limit = info.view, self._settings.config.keep_failed
        assert view is not None and limit is not None
        if not (info.released or self.may_end(view)):
            info.cannot_keep = True
            return
        if self._exceeds_limit(info):
            info.not_kept = (
                "its storage is not kept: rabbit.keep_failed_limit is reached"
            )
            info.cannot_keep = True
            return
        until = self._clock.now() + limit
        info.keeping = True
        try:
            await self._data.note_failed(info, until, step.note)
            await self._workflows.keep_failed(info, until, step.note)
        finally:
            info.keeping = False
        if info.logs_rescue:
            self._data.log_failed(info, until, step.note)

    def _exceeds_limit(self, info: WorkflowInfo) -> bool:
        """Whether the job's user would have more storage kept for a rescue than one
        user may have. Copies of many jobs may fail in the same moment."""
        machine = sum(self._free_storage.sizes.values())
        jobs = [info.jobid]
        for other in self._jobs.infos():
            failed = other.view is not None and other.view.has_failed
            kept = failed or other.keeping
            if kept and other.userid == info.userid and other is not info:
                jobs.append(other.jobid)
        size = sum(sum(self._free_storage.bytes_of(jobid).values()) for jobid in jobs)
        most = machine * self._settings.config.keep_failed_limit / 100
        return 0 < machine and most < size
