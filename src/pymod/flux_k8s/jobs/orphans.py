# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The watch of Workflows, and those in our naming scheme that no job claims.

Either the plugin has not reported the job yet, or the job has ended while the module
was away. In the second case only the module can tear the Workflow down, and tell what
became of data that was to go out after the job's end.
"""

from __future__ import annotations

import errno
import json
import syslog
from typing import Callable, NamedTuple, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.controller import Controller, Options
from flux_k8s.control.coroutines import call
from flux_k8s.control.kubecalls import Watched
from flux_k8s.formats.jobid import f58, jobid_of_workflow, workflow_name
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.outage import Outage
from flux_k8s.jobs.outcomes import Outcomes
from flux_k8s.jobs.records import look_up
from flux_k8s.jobs.step import Step
from flux_k8s.jobs.workflowinfo import Goal, Haste, WorkflowInfo
from flux_k8s.machine.ledger import Ledger
from flux_k8s.objects.workflowview import FINALIZER
from flux_k8s.ports import WORKFLOW, RpcError, Seen
from flux_k8s.reasons import EPILOG_TIMEOUT, FATAL, Reason

TIMEOUT = "timeout"
"""The type of the exception about a job's time limit."""

OF_END = ("start", "finish", "release", "exception")
"""The events that tell the end of a job."""

LOOK_AGAIN = 300.0
"""Seconds until a job that has not ended, and that nobody reports on, is looked at
again."""


class End(NamedTuple):
    """What the eventlog of a job (RFC 18) says of its end. It says so even if neither
    the plugin nor the module was there.

    Attributes:
        ran: its tasks were begun.
        haste: ABANDON if a fatal exception came after them: its data is given up. A
            time limit may pass until Flux has taken all nodes back, and does not; the
            plugin has the same rule. ABORT if its epilog was given up.
    """

    ran: bool = False
    haste: Haste = Haste.NONE


def read_end(eventlog: str, owner: int) -> End:
    """Read the end of a job from its eventlog.

    Args:
        owner: the user ID of the instance owner: an abort by a guest does not count.
    """
    end, over, taken_back = End(), False, False
    # Not splitlines(): that would split at separators that JSON allows in strings.
    for line in eventlog.split("\n"):
        if not any(f'"{name}"' in line for name in OF_END):
            continue
        try:
            event = json.loads(line)
            name, context = event["name"], event.get("context") or {}
            type, fatal = context.get("type"), context.get("severity") == FATAL
            by = context.get("userid", owner)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
        over = over or name == "finish"
        taken_back = taken_back or (name == "release" and context.get("final") is True)
        if name == "start":
            end = end._replace(ran=True)
        elif name == "exception" and fatal:
            if type == EPILOG_TIMEOUT and by in (owner, 0):
                end = end._replace(haste=Haste.ABORT)
            elif over and (taken_back or type != TIMEOUT):
                end = end._replace(haste=max(end.haste, Haste.ABANDON))
    return end


def _want_data_out(info: WorkflowInfo) -> None:
    """A job has ended: its storage is to be released when its data is out."""
    info.nodes_released = True
    info.want_released(ran=True, waits=False)


class Orphans:
    """Releases the Workflows that no job claims and whose job has ended. The data of a
    job whose tasks were begun goes out before, unless it was given up.

    A job that ended before its data was out has a Workflow until it is reported what
    became of the data. If that is deleted while no service is there to see it, nothing
    is left that a service would look at, and the jobs that depend on the data would
    wait for ever: so the plugin asks about it.

    Args:
        return_share: frees the share of a job, which the scheduler takes back.
        ledger: has the storage that is left of jobs without a Workflow.
    """

    def __init__(
        self,
        context: Context,
        jobs: JobTable,
        outage: Outage,
        return_share: Callable[[WorkflowInfo], None],
        ledger: Ledger,
    ) -> None:
        self._flux = context.flux
        self._settings = context.settings
        self._jobs = jobs
        self._outage = outage
        self._return_share = return_share
        self._ledger = ledger
        self._outcomes = Outcomes(context.flux)
        self._checked = False
        self._failing = False
        self._not_ended: set[int] = set()
        self._asked: set[int] = set()
        self._controller = Controller[int](
            context.flux,
            self._look_after,
            self._failed,
            Options[int](expected=(RpcError,), scope=jobs.scope.run),
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
        for jobid in tuple(self._asked):
            self._see_to_report(jobid)
        for jobid in self._ledger.jobs:
            if not (jobid in self._jobs or jobid in self._jobs.unclaimed):
                self._ledger.forget(jobid)  # the scheduler has its share back

    def ask(self, jobid: int) -> None:
        """Jobs wait for the data of a job that ended before it was out."""
        self._asked.add(jobid)
        self.gone(jobid)

    def gone(self, jobid: int) -> None:
        """A Workflow may be gone: see to the report on its job, once all Workflows and
        all jobs are known. The data of a job in the table is reported on when its
        Workflow has come to its end, and one whose Workflow no job claims is about to
        be in the table; but the Workflow may be deleted before."""
        if self._checked and jobid in self._asked:
            self._see_to_report(jobid)

    def _see_to_report(self, jobid: int) -> None:
        if jobid in self._jobs.unclaimed:
            return
        job = self._jobs.get(jobid)
        if job is None:
            self._controller.add(jobid)
        else:
            self._asked.remove(jobid)
            # Its Workflow may have lost the annotation, and it may have been recorded
            # what became of the data, of which nobody was told.
            job.info.nodes_released, job.info.data_reported = True, False
            self._jobs.changed(job)

    def added(self, jobid: int) -> None:
        """The watch has shown a new Workflow that no job claims. Until :meth:`check`
        has checked all Workflows, the plugin may still report its job."""
        if self._checked:
            self.check_ended(jobid)

    def check_ended(self, jobid: int) -> None:
        """Find out whether a job that the plugin does not hold has ended."""
        self._not_ended.discard(jobid)
        self._controller.add(jobid)

    async def _look_after(self, jobid: int) -> Optional[float]:
        """See to a Workflow that no job claims, or to the report on one that is gone,
        where one was asked for.

        Raises:
            RpcError: a module of Flux does not answer, or cannot tell.
        """
        if jobid in self._jobs.unclaimed or jobid in self._jobs:
            return await self._release_if_ended(jobid)
        if jobid not in self._asked:
            return None
        self._asked.remove(jobid)
        try:
            owed = not await self._outcomes.repeat(jobid)
        except RpcError:
            self._asked.add(jobid)
            raise
        self._failing = False
        if owed and jobid not in self._jobs:
            job = self._jobs.obtain(jobid, Goal.RELEASED, ended=True)
            _want_data_out(job.info)
            job.info.doubtful = True  # so that it is looked for before that is said
            self._jobs.changed(job)
        return None

    async def _release_if_ended(self, jobid: int) -> Optional[float]:
        """Release the storage of a job that has ended, or whose epilog was given up
        according to its eventlog. Returns the seconds until a job that has not ended is
        looked at again: the plugin, which does not hold it, will not report its end.

        Raises:
            RpcError: a module of Flux does not answer, or cannot tell.
        """
        # The plugin does not hold the job: it has released such a one.
        released = await self._has_released_nodes(jobid)
        ended = released or await call(self._flux.job_ended, jobid)
        if ended is None:
            raise RpcError(errno.EAGAIN, "job-list does not answer")
        # That of a job that was purged is empty.
        eventlog = await look_up(self._flux, jobid, "eventlog") or ""
        end = read_end(eventlog, self._settings.owner)
        self._failing = False
        if jobid in self._not_ended and not self._is_stuck(jobid):
            self._not_ended.discard(jobid)
            return None  # the plugin holds the job after all
        aborted = end.haste is Haste.ABORT
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
        elif end.ran and end.haste is Haste.NONE:
            self._log_orphan(jobid)
            self._follow(jobid)
        else:
            self._release(jobid, max(end.haste, Haste.ABANDON))
        return None

    async def _has_released_nodes(self, jobid: int) -> bool:
        """Whether a job may have ended before its data was out. The data is not given
        up, also where the Workflow has lost the annotation that says so.

        Raises:
            RpcError: a module of Flux does not answer.
        """
        job, found = self._jobs.get(jobid), self._jobs.unclaimed.get(jobid)
        if job is not None:
            seen = job.info.nodes_released
        else:
            seen = found is not None and found[0].nodes_released
        return seen or await self._outcomes.ended_before(jobid)

    def _follow(self, jobid: int) -> None:
        """Take DataOut and Teardown of a job that has ended to their end."""
        job = self._jobs.obtain(jobid, Goal.RELEASED, ended=True)
        _want_data_out(job.info)
        self._return_share(job.info)
        self._jobs.changed(job)

    def _may_be_of_others(self, jobid: int) -> bool:
        """Whether a Workflow without a job may be that of another Flux instance, which
        gave its Workflows no label yet, or has a name that this one had."""
        found = self._jobs.unclaimed.get(jobid)
        identity = self._settings.identity
        return found is not None and not identity.owns(found[0].instance)

    def _failed(self, jobid: int, error: RpcError) -> None:
        """Log an error once: it concerns many jobs."""
        if not self._failing:
            self._failing = True
            text = f"cannot tell whether {f58(jobid)} has ended: {error}"
            text = f"{text}; trying again"
            self._flux.log(syslog.LOG_WARNING, text, Reason.FLUX_ERROR)

    def _release(self, jobid: int, haste: Haste) -> None:
        """Release the storage of a job that waits for nothing any more."""
        if not (jobid in self._jobs or self._is_stuck(jobid)):
            return
        self._log_orphan(jobid)
        job = self._jobs.obtain(jobid, Goal.RELEASED, ended=True)
        job.info.want_released(haste=haste, waits=False)
        self._return_share(job.info)
        self._jobs.changed(job)

    def _log_orphan(self, jobid: int) -> None:
        if jobid not in self._jobs:
            text = f"{f58(jobid)}: tearing down a Workflow whose job has ended"
            self._flux.log(syslog.LOG_NOTICE, text, Reason.ORPHAN)

    def _is_stuck(self, jobid: int) -> bool:
        """Whether the job has an unclaimed Workflow that only the module can tear
        down. Nothing holds one that is being deleted without a finalizer of ours: a job
        of the same ID that becomes known has to wait for the end of that."""
        found = self._jobs.unclaimed.get(jobid)
        if found is None:
            return False
        view, _ = found
        return not view.deleting or FINALIZER in view.finalizers


class WorkflowWatch(Watched):
    """The watch of Workflows. Each event goes to the job whose Workflow it shows."""

    kind = WORKFLOW

    def __init__(
        self,
        context: Context,
        jobs: JobTable,
        orphans: Orphans,
        outage: Outage,
    ) -> None:
        super().__init__(context.kube)
        self._clock = context.clock
        self._jobs = jobs
        self._orphans = orphans
        self._outage = outage

    def event(self, type: str, object: Seen) -> None:
        """A Workflow changed."""
        jobid = jobid_of_workflow(object.name)
        if jobid is None:
            return
        self._outage.note_answer()
        if self._jobs.is_left_alone(jobid):
            self._jobs.unseen[jobid] = type, object
        else:
            self._jobs.scope.run(jobid, self._see, jobid, type, object)

    def synced(self) -> None:
        """All Workflows have been listed (again)."""
        for job in self._jobs:
            if _lacks(job):
                job.info.see_gone(self._clock.now())
                self._jobs.changed(job)
        super().synced()
        self._orphans.check()

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
