# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The table of the known jobs.

News of a job go into its entry, and the job is added to the queue of the
:class:`~flux_k8s.jobs.reconciler.Reconciler`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Callable, Iterator, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.backoff import Backoff
from flux_k8s.control.controller import Controller
from flux_k8s.control.coroutines import Turns, drive
from flux_k8s.formats.rset import Allocated
from flux_k8s.jobs.isolation import Faults, JobScope
from flux_k8s.jobs.outage import Outage
from flux_k8s.jobs.records import Records
from flux_k8s.jobs.step import Next
from flux_k8s.jobs.timelimits import Moment
from flux_k8s.jobs.work import Work
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import WORKFLOW, Json, Seen
from flux_k8s.slots import slotted
from flux_k8s.version import UNKNOWN

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 60.0
"""Seconds after a step of a job has failed."""

DETAILS = 10.0
"""Seconds within which a job is handled whose Workflow changed in details: more follow,
and most are of a state that is complete by then."""

VISITS = 50
"""Jobs that are visited in one turn of the reactor: each may get a memo."""

Decision = tuple[Next, Optional[tuple[object, ...]]]
"""A step, and what of the Workflow is decisive for it."""


@slotted
@dataclass
class Shown:
    """What queries, metrics and memos have shown of a job; :mod:`flux_k8s.jobs.queries`
    and what it uses write this. No job depends on it.

    Attributes:
        counted: the job is counted (False), and as one that has failed (True).
        state: that of the job at its last change; None before.
        timed: the last state whose duration is counted.
        nodes: the job's nodes as a hostlist, and their number.
        nodes_of: the allocation that ``nodes`` are of.
        memo: the last memo about its progress; empty if an earlier service may have
            posted one.
        serial: of the details that were made last; 0 before.
        details: their hash.
    """

    counted: Optional[bool] = None
    state: Optional[str] = None
    timed: Optional[State] = None
    nodes: tuple[str, int] = ("", 0)
    nodes_of: Optional[Allocated] = None
    memo: Optional[str] = None
    serial: int = 0
    details: int = 0


@slotted
@dataclass
class Job:
    """A job with storage, or with a request for storage.

    Attributes:
        backoff: the pauses between tries of a step.
        logged: the failures of the last decision that the log has a line about.
        memo: the text of the memo about what the job waits for; None when there is no
            memo, empty when somebody else has posted it, with a text that is not known.
        in_outage: the job waits for the end of an outage.
        step: the step that was begun last.
        failing_since: the UNIX time since which ``step`` fails while Kubernetes answers
            other requests; None during an outage.
        last_decision: the last decision, apart from look-ups. If the same decision
            is made again, the step is repeated.
        retry_now: the job is to be handled again without a pause.
        faults: the unexpected exceptions in work for the job.
        unknown: the plugin has sent a request about the job, but not yet its answer to
            hello, which has the other facts about the job.
        shown: what was shown of the job.
    """

    info: WorkflowInfo
    backoff: Backoff
    logged: set[str] = field(default_factory=set)
    memo: Optional[str] = None
    in_outage: bool = False
    step: Optional[Next] = None
    failing_since: Optional[float] = None
    last_decision: Optional[Decision] = None
    retry_now: bool = False
    faults: Faults = field(default_factory=Faults)
    unknown: bool = False
    shown: Shown = field(default_factory=Shown)


Visit = Callable[[Job], None]


class JobTable:
    """The known jobs, by job ID, and the queue of the jobs to be reconciled.

    Attributes:
        complete: all jobs that the plugin holds are known.
        awaits_hello: the plugin is about to list its jobs. A job that is added now is
            ``unknown``.
        outage: whether Kubernetes is within reach, and what it has listed.
        scope: the job that something is done for.
        plugin_version: the version of the plugin, as it said last.
        has_no_plugin: the plugin was not loaded when it was asked for its jobs last.
        unclaimed: the Workflows in our naming scheme that belong to no known job.
        unseen: the last event of each Workflow whose job is left alone.
        stopped: the service has stopped; later answers do not count.
        note_busy: is called with a job that has changed while a step of it is under
            way.
        note_change: is called with a job that is there, or of which something may have
            changed.
        note_end: is called with a job that is over.
        note_nodes_released: is called with a job whose Workflow says that its nodes may
            have been given back.
    """

    def __init__(
        self,
        context: Context,
        queue: Controller[int],
        outage: Outage,
        records: Records,
        rng: random.Random,
        scope: JobScope,
    ) -> None:
        """
        Args:
            queue: runs the :class:`Reconciler`.
            rng: for the pauses after failures.
        """
        self.complete = False
        self.awaits_hello = False
        self.has_no_plugin = False
        self.plugin_version = UNKNOWN
        self.unclaimed: dict[int, tuple[WorkflowView, Seen]] = {}
        self.unseen: dict[int, tuple[str, Seen]] = {}
        self.stopped = False
        self.note_busy: Visit = lambda job: None
        self.note_change: Callable[[int], None] = lambda jobid: None
        self.note_end: Callable[[int], None] = lambda jobid: None
        self.note_nodes_released: Callable[[int], None] = lambda jobid: None
        self._clock = context.clock
        self._queue = queue
        self.outage = outage
        self.scope = scope
        self._records = records
        self._rng = rng
        self._settings = context.settings
        self._may_own = context.settings.identity.may_own
        self._jobs: dict[int, Job] = {}
        self._turns = Turns(self._clock)

    def __iter__(self) -> Iterator[Job]:
        return iter(tuple(self._jobs.values()))

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, jobid: int) -> bool:
        return jobid in self._jobs

    def get(self, jobid: int) -> Optional[Job]:
        return self._jobs.get(jobid)

    def after(self, jobid: int, userid: Optional[int] = None) -> list[int]:
        """The IDs of the jobs after ``jobid``, in order: of all users (None), or of one
        (to find them among ten thousand takes a millisecond)."""
        return sorted(
            id
            for id, job in self._jobs.items()
            if id > jobid and (userid is None or job.info.userid == userid)
        )

    def backoff(self, jobid: int) -> Backoff:
        """The pauses between tries of a job's steps."""
        return self._jobs[jobid].backoff

    def obtain(self, jobid: int, goal: Goal, ended: bool = False) -> Job:
        """A job's entry, made with ``goal`` when the job is new.

        Args:
            ended: a new job has ended. Flux may have purged it.
        """
        job = self._jobs.get(jobid)
        if job is None:
            info = WorkflowInfo(
                jobid,
                goal,
                learned=self._clock.now(),
                doubtful=goal is not Goal.PLANNED,
                answered=frozenset({Goal.RELEASED} if ended else ()),
            )
            backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, self._rng)
            job = Job(info, backoff, unknown=self.awaits_hello)
            self._jobs[jobid] = job
            claimed = self.unclaimed.pop(jobid, None)
            if claimed is not None:
                self._show(job, *claimed)
        return job

    def remove(self, job: Job) -> None:
        """Nothing is left to be done for a job."""
        self._queue.forget(job.info.jobid)
        self.unseen.pop(job.info.jobid, None)
        del self._jobs[job.info.jobid]
        self.note_end(job.info.jobid)

    def stop(self) -> None:
        """Do nothing for any job any more."""
        self.stopped = True
        self._turns.stop()
        self._queue.stop()

    def visit_all(self, visit: Visit) -> None:
        """Call a function with each job that there is now: with some of them before
        this returns, and with the others in the next turns of the reactor."""
        drive(self._visit(visit), lambda result: None, ())

    async def _visit(self, visit: Visit) -> None:
        async for jobid in self._turns.each(tuple(self._jobs), VISITS):
            job = self._jobs.get(jobid)
            if job is not None:
                visit(job)

    def changed(self, job: Job) -> None:
        """Something that matters to a job has changed: have the job handled. A step
        that is under way may take long, so what others wait for is reported now."""
        if self._queue.busy(job.info.jobid):
            self.note_busy(job)
        self.note_change(job.info.jobid)
        self._queue.add(job.info.jobid)

    def asked(self, job: Job) -> None:
        """Flux has sent a request for the job, or something that it may have waited for
        has come: do not wait for the end of a pause."""
        job.retry_now = True
        self.changed(job)

    def ask(self, jobid: int) -> None:
        """As :meth:`asked`, of a job that may be over."""
        job = self._jobs.get(jobid)
        if job is not None:
            self.asked(job)

    def infos(self) -> Iterator[WorkflowInfo]:
        """The state of the storage of each job."""
        return (job.info for job in self._jobs.values())

    def unclaimed_views(self) -> Optional[list[WorkflowView]]:
        """The Workflows that belong to no known job. None as long as not all Workflows
        have been seen."""
        if not self.outage.has_listed(WORKFLOW):
            return None
        return [view for view, _ in self.unclaimed.values()]

    def moment(self, lost: str = "") -> Moment:
        """The present, for decisions about a job."""
        config = self._settings.config
        return Moment(self._clock.now(), config, self.outage.outages, lost)

    def note_withheld(self, jobid: int) -> None:
        """The scheduler keeps a job's storage from others."""
        job = self._jobs.get(jobid)
        if job is not None:
            job.info.withheld = True
            self.changed(job)

    def fails(self, job: Job) -> bool:
        """Whether the last try of a job's step failed."""
        return self._queue.failures(job.info.jobid) > 0

    def broke(self, job: Job, again: bool) -> None:
        """Clean up after an exception in work for a job. ``again``: have the job
        handled after a pause."""
        if again:
            self._queue.retry(job.info.jobid)
        else:
            self._queue.abandon(job.info.jobid)

    def see(self, jobid: int, type: str, workflow: Seen) -> bool:
        """A Workflow in our naming scheme changed. Return whether it is a new one, made
        by this Flux instance, that no job claims."""
        job = self._jobs.get(jobid)
        self.unseen.pop(jobid, None)
        if job is not None:
            self._take_in(job, type, workflow)
            return False
        view = WorkflowView.parse(workflow.encoded, self._may_own)
        if view.nodes_released and type != "DELETED":
            self.note_nodes_released(jobid)
        if type == "DELETED":
            self.unclaimed.pop(jobid, None)
        elif view.is_of(jobid):
            new = jobid not in self.unclaimed
            self.unclaimed[jobid] = view, workflow
            return new
        else:
            self.unclaimed.pop(jobid, None)
        return False

    def see_unseen(self, job: Job) -> None:
        """Take in what the watch has shown of a job's Workflow while the job was left
        alone."""
        unseen = self.unseen.pop(job.info.jobid, None)
        if unseen is not None:
            self._take_in(job, *unseen)

    def _take_in(self, job: Job, type: str, workflow: Seen) -> None:
        """Take in an event of a job's Workflow, and have the job handled: later if only
        details have changed, which others will follow (:data:`DETAILS`), and not at all
        for a version that the answer to a request has shown."""
        info, before = job.info, job.info.view
        if type == "DELETED":
            if info.shown == workflow.uid:
                info.shown = None
            if before is not None and before.uid == workflow.uid:
                info.see_gone(self._clock.now())
            self.changed(job)
            return
        shown = workflow.uid, workflow.resource_version
        if before is not None and shown == (before.uid, before.resource_version):
            view = before
        else:
            view = WorkflowView.parse(workflow.encoded, self._may_own)
        follows = type == "MODIFIED" and info.shown == view.uid
        if follows and view is before:
            return
        if view.nodes_released:
            self.note_nodes_released(info.jobid)
        decisive = info.decisive
        self._show(job, view, workflow)
        if not follows or info.decisive != decisive:
            self.changed(job)
            return
        self._queue.add(info.jobid, DETAILS)
        self.note_change(info.jobid)

    def _show(self, job: Job, view: WorkflowView, workflow: Seen) -> None:
        """Take in a watch event of a job's Workflow."""
        job.info.see(view, self._clock.now(), watched=True)
        self._records.note(job.info, workflow.encoded)

    def releases(self, jobid: int) -> bool:
        """Whether a job's storage is to be released. True for a Workflow without a
        job."""
        job = self._jobs.get(jobid)
        return self.complete if job is None else job.info.goal is Goal.RELEASED

    def is_left_alone(self, jobid: int) -> bool:
        """Nothing is done for a job, at least until its storage is to be released."""
        job = self._jobs.get(jobid)
        if job is not None and job.faults.given_up:
            return True
        return self.scope.bars(Work(jobid, self.releases(jobid)))

    def awaited_nodes(self) -> Optional[frozenset[str]]:
        """The nodes that wait for mounts; None as long as that is not known."""
        if not self.complete:
            return None
        hosts: set[str] = set()
        for info in self.infos():
            if info.goal is Goal.READY and not info.mounted:
                if info.allocation is None:
                    return None
                hosts.update(info.allocation.hosts)
        return frozenset(hosts)

    def has_mounts(self, jobid: int) -> Optional[bool]:
        """Whether there are ClientMounts of a job, which say whether its storage is
        mounted; None if it may be mounted yet, or that is not known."""
        if not (self.outage.listed and self.complete):
            return None
        job = self._jobs.get(jobid)
        unclaimed, _ = self.unclaimed.get(jobid, (None, None))
        view = unclaimed if job is None else job.info.view
        if view is not None and (view.desired is None or view.desired <= State.PreRun):
            return None
        return view is not None and view.has_clientmounts

    def may_hold(self, jobid: int) -> bool:
        """Whether a job may hold a share from the scheduler: it is known, or not all
        jobs and Workflows are."""
        if not (self.complete and self.outage.has_listed(WORKFLOW)):
            return True
        return jobid in self._jobs or jobid in self.unclaimed

    def load(self) -> Json:
        """How many jobs are ready to be handled, are handled, and are tried again."""
        busy, retrying = self._queue.counts()
        return {"ready": self._queue.ready, "busy": busy, "retrying": retrying}
