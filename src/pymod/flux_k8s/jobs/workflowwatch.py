# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The watch of Workflows. Each event goes to the job whose Workflow it shows."""

from __future__ import annotations

from typing import Optional

from flux_k8s.config.context import Context
from flux_k8s.formats.jobid import jobid_of_workflow
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.orphans import Orphans
from flux_k8s.jobs.outage import Outage
from flux_k8s.jobs.step import Step
from flux_k8s.ports import WORKFLOW, KubeError, Seen, Watch


class WorkflowWatch:
    """Implements :class:`flux_k8s.ports.WatchHandler` for Workflows."""

    def __init__(
        self,
        jobs: JobTable,
        orphans: Orphans,
        outage: Outage,
    ) -> None:
        self._jobs = jobs
        self._orphans = orphans
        self._outage = outage
        self._watch: Optional[Watch] = None

    def start(self, context: Context) -> None:
        """Watch the Workflows of the service's namespace."""
        namespace = context.settings.namespace
        self._watch = context.kube.watch(WORKFLOW, namespace, self)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def event(self, type: str, object: Seen) -> None:
        """A Workflow changed."""
        jobid = jobid_of_workflow(object.name)
        if self._jobs.stopped or jobid is None:
            return
        self._outage.note_answer()
        if self._jobs.is_left_alone(jobid):
            self._jobs.unseen[jobid] = type, object
        else:
            self._jobs.scope.run(jobid, self._see, jobid, type, object)

    def synced(self) -> None:
        """All Workflows have been listed (again)."""
        if self._jobs.stopped:
            return
        for job in self._jobs:
            if _lacks(job):
                job.info.doubtful = True
                self._jobs.changed(job)
        self._outage.note_watch(WORKFLOW, None)
        self._orphans.check()

    def trouble(self, error: KubeError) -> None:
        """The watch is interrupted."""
        self._outage.note_watch(WORKFLOW, error)

    def see_unclaimed(self) -> None:
        """All jobs are known. A Workflow that no job claims is to be released, which
        may be done although nothing else was."""
        for jobid in [jobid for jobid in self._jobs.unseen if jobid not in self._jobs]:
            self.event(*self._jobs.unseen.pop(jobid))

    def _see(self, jobid: int, type: str, object: Seen) -> None:
        if self._jobs.see(jobid, type, object):
            self._orphans.added(jobid)
        self._orphans.gone(jobid)


def _lacks(job: Job) -> bool:
    """Whether the list lacks the Workflow of a job, or lacked it while it was created:
    what became of it before the list no event tells."""
    view = job.info.view
    if view is None:
        return job.step is not None and job.step.step is Step.CREATE
    return view.uid != job.info.shown
