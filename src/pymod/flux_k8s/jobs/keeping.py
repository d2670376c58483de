# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Storage that is kept although its job could end: for nodes that have not unmounted
(``rabbit.unmount_failure``), or for data that was not copied out
(``rabbit.keep_failed``), which can be rescued meanwhile.

The job ends, where it may: an annotation of the Workflow says so, and its storage is
kept from others. The steps may be repeated without harm, as all of
:mod:`flux_k8s.jobs.steps`.

DWS mounts the file systems of persistent storage for each job that uses it, and again
on the Rabbits to copy from and to it. One that a node which has not unmounted may still
have mounted, and that one node at a time may mount (xfs, raw), would be mounted twice
then: so other jobs wait.

For a rescue, nnf-dm makes a data movement again whose status is removed. To delete
those that failed would not do: NNF makes them again, but takes DataOut for complete at
once if all others have succeeded, since its cache does not have the new ones yet. First
the data movements are started again, then the Workflow is marked. If the service dies
in between, the storage is still kept, and may be rescued again.
"""

from __future__ import annotations

import contextlib
import errno
import syslog
from dataclasses import replace
from typing import Iterator, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.coroutines import Call, settle
from flux_k8s.errors import QueryError, StorageUnavailable
from flux_k8s.formats import hostlist
from flux_k8s.formats.timestamps import format_timestamp
from flux_k8s.jobs.copies import list_movements
from flux_k8s.jobs.findings import Mounts
from flux_k8s.jobs.inuse import InUse
from flux_k8s.jobs.jobrows import kept_until
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.outcomes import Outcomes
from flux_k8s.jobs.step import Next, Step
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import WorkflowRequests
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.objects.datamovement import key_of, parse
from flux_k8s.objects.workflowmarks import COPIES, FAILED_UNTIL, GIVEN_UP, RESCUED
from flux_k8s.objects.workflowstate import State
from flux_k8s.objects.workflowview import WorkflowView
from flux_k8s.ports import (
    NNFDATAMOVEMENT,
    Json,
    KubeError,
    gone,
)
from flux_k8s.reasons import Note, Reason
from flux_k8s.rules.directivebreakdown.breakdown import Reference, is_networked
from flux_k8s.text import NOTE, printable

MOUNTING = (State.DataIn, State.PreRun, State.DataOut)
"""The states in which DWS mounts storage."""

RESCUES_LOGGED = 10
"""The attempts to rescue the data of a job that are logged. Its user can make as many
as he likes, and have each fail at once."""


LIMIT_REACHED = "its storage is not kept: rabbit.keep_failed_limit is reached"


class Keeping:
    """Keeps the storage of jobs."""

    def __init__(
        self,
        context: Context,
        machine: RabbitManager,
        jobs: JobTable,
        workflows: WorkflowRequests,
        in_use: InUse,
        outcomes: Outcomes,
    ) -> None:
        self._clock = context.clock
        self._log = context.log
        self._calls = context.kube
        self._settings = context.settings
        self._ledger = machine.ledger
        self._workflows = workflows
        self._in_use = in_use
        self._outcomes = outcomes
        self._marking: set[int] = set()
        self._jobs = jobs

    def may_end(self, view: WorkflowView) -> bool:
        """Whether a job may end before its storage is gone. A container runs on, and
        of storage that the service cannot see, others could not be kept off.

        Raises:
            StorageUnavailable: it is not known yet whether the service can see it.
        """
        if not (self._ledger.counted or view.runs_containers):
            raise StorageUnavailable("Servers are not listed yet", Reason.NOT_READY)
        return self._ledger.listed and not view.runs_containers

    async def unmount(self, info: WorkflowInfo, following: Next) -> None:
        """Drain the nodes that have not unmounted the storage of a job. With
        ``unmount_failure``, find those of them that could still write to it: if there
        are any, mark the Workflow, and the other nodes may go to other jobs. Without
        any, all may that have unmounted in Teardown, when it takes too long."""
        view, now = info.view, self._clock.now()
        assert view is not None
        if not (self._settings.config.keeps_mounted or view.kept_for):
            await self._in_use.drain_mounted(info, following.why)
            return
        passed_over = view.forced or info.failure_tolerance > 0 or not view.complete
        if not (passed_over or await self._in_use.passed_over(info)):
            info.mounts = Mounts(now)
            return
        writers, overdue = await self._in_use.find_writers(
            info, following.why.text, following.failed
        )
        if writers and (overdue or not view.kept_for):
            # A job that was aborted has ended.
            ends = not info.released and self.may_end(view)
            if not info.released:
                names = hostlist.encode(writers)
                await self._outcomes.write_kept(info, names, kept_until(names))
            kept_for = (*view.kept_for_nodes, *(overdue or writers))
            await self._workflows.keep(info, kept_for, ends)
        elif following.ends and self.may_end(view):
            await self._workflows.keep(info, (), release_nodes=True)
        info.mounts.writers = writers
        if info.view is None or info.view.complete == view.complete:
            info.mounts.found_at = now  # else DWS has passed over nodes meanwhile

    async def keep_failed(self, info: WorkflowInfo, note: Note) -> None:
        """Keep the storage of a job whose data could not be copied out, where the job
        can end before it is gone, or has. Else mark the Workflow: it is not kept."""
        view, limit = info.view, self._settings.config.keep_failed
        assert view is not None and limit is not None
        if not (info.released or self.may_end(view)):
            await self._workflows.mark_not_kept(info, note)
            return
        if self._exceeds_limit(info):
            # What is lost is said after it.
            text = f"{printable(note.text, NOTE // 4)}; {LIMIT_REACHED}"
            await self._workflows.mark_not_kept(info, replace(note, text=text))
            return
        until = self._clock.now() + limit
        self._marking.add(info.jobid)
        try:
            await self._outcomes.write_failed(info, until, note)
            await self._workflows.keep_failed(info, until, note)
        finally:
            self._marking.discard(info.jobid)
        if info.rescues <= RESCUES_LOGGED:
            self._outcomes.log_failed(info, until, note)

    def _exceeds_limit(self, info: WorkflowInfo) -> bool:
        """Whether the job's user would have more storage kept for a rescue than one
        user may have. Copies of many jobs may fail in the same moment."""
        machine = sum(self._ledger.sizes.values())
        jobs = [info.jobid]
        for other in self._jobs.infos():
            failed = other.view is not None and other.view.copy_failed
            kept = failed or other.jobid in self._marking
            if kept and other.userid == info.userid and other is not info:
                jobs.append(other.jobid)
        size = sum(sum(self._ledger.bytes_of(jobid).values()) for jobid in jobs)
        most = machine * self._settings.config.keep_failed_limit / 100
        return 0 < machine and most < size

    # Persistent storage

    def check_shared(self, info: WorkflowInfo) -> None:
        """Refuse to mount the storage of a job for now, if a node may still write to
        some of it that is mounted there for another job.

        Raises:
            StorageUnavailable: names the storage, the nodes and the other job, or not
                all Workflows have been seen.
        """
        view = info.view
        if view is None or not view.persistent_storage:
            return
        unclaimed = self._jobs.unclaimed_views()
        if unclaimed is None:
            raise StorageUnavailable("Workflows are not listed yet", Reason.NOT_READY)
        others = [
            job.info.view
            for job in self._jobs
            if job.info is not info
            and job.info.view is not None
            and _awaits_unmount(job)
        ]
        for held in [*others, *(left for left in unclaimed if left.awaits_unmount)]:
            for name in view.persistent_storage:
                if name in held.persistent_storage and self._is_exclusive(name):
                    raise StorageUnavailable(
                        f"{held.kept_for or 'a node'} has not unmounted the persistent"
                        f" storage {name} of job {held.jobid}",
                        Reason.STORAGE_IN_USE,
                    )

    def _is_exclusive(self, name: str) -> bool:
        """Whether one node at a time may mount a file system of persistent storage, or
        that is not known: any number may mount one that they reach over the network."""
        servers = Reference(self._settings.namespace, name)
        return not is_networked(len(self._ledger.labels_of(servers)))

    # Data that could not be copied out

    async def rescue(self, job: Job, by: int) -> Json:
        """Have the data of a job copied again. The answer has ``copies``, how many
        data movements were started again.

        Args:
            by: the user who asks for it.

        Raises:
            QueryError: no data of the job waits for that.
        """
        info = job.info
        view = _check_failed(info)
        if view.failed_until is None:
            text = f"job {info.f58}: its data is being copied again already"
            raise QueryError(errno.EALREADY, text)
        if view.given_up or self._clock.now() >= view.failed_until:
            raise QueryError(errno.EINVAL, f"job {info.f58}: its data is given up")
        with self._request(info):
            copies = await self._start_again(info)
            since = format_timestamp(self._clock.now())
            marks = {FAILED_UNTIL: None, RESCUED: since, COPIES: None}
            await self._workflows.annotate(info, marks)
            info.rescues += 1
            text = f"{info.f58}: user {by} has its data copied again: {copies} copies"
            if info.rescues <= RESCUES_LOGGED:
                self._log(syslog.LOG_NOTICE, text, Reason.RESCUE)
        return {"copies": copies}

    async def give_up(self, job: Job, by: int) -> Json:
        """Have the storage of a job go, and with it the data that is not copied.

        Raises:
            QueryError: the storage is not kept.
        """
        info = job.info
        if not _check_failed(info).given_up:
            with self._request(info):
                await self._workflows.annotate(info, {GIVEN_UP: "true"})
                _check_failed(info)
                text = f"{info.f58}: user {by} gives its data up"
                self._log(syslog.LOG_NOTICE, text, Reason.GIVEN_UP)
        return {}

    @contextlib.contextmanager
    def _request(self, info: WorkflowInfo) -> Iterator[None]:
        """A user's request about the data is under way, one at a time: the storage
        stays meanwhile, also if its time ends.

        Raises:
            QueryError: another one is.
        """
        if info.rescuing:
            text = f"job {info.f58}: another request about its data is under way"
            raise QueryError(errno.EALREADY, text)
        info.rescuing = True
        try:
            yield
        finally:
            info.rescuing = False
            self._jobs.ask(info.jobid)

    async def _start_again(self, info: WorkflowInfo) -> int:
        """Remove the status of the data movements that failed. Returns their number.

        Raises:
            KubeError: a request failed. Some copies may have been started.
            QueryError: Kubernetes does not allow it.
        """
        copies = 0
        try:
            # One page at a time: the requests of other jobs do not wait behind many.
            async for items, _ in list_movements(self._calls, info.name):
                failed = [key_of(item) for item in items if _is_failed_copy(item)]
                answers = await settle(self._clear(*key) for key in failed)
                for answer in answers:
                    if isinstance(answer, KubeError) and not gone(answer):
                        raise _refusal(answer, f"patch {NNFDATAMOVEMENT.plural}/status")
                copies += len(failed)
        except KubeError as error:
            raise _refusal(error, f"list {NNFDATAMOVEMENT.plural}") from None
        return copies

    def _clear(self, namespace: str, name: str) -> Call[Json]:
        body: Json = {"status": None}
        return self._calls.patch_status(NNFDATAMOVEMENT, namespace, name, body)


def _is_failed_copy(item: Json) -> bool:
    """Whether a data movement belongs to DataOut and has ended without success."""
    movement = parse(item)
    return movement.failed and movement.phase == State.DataOut.name


def _refusal(error: KubeError, what: str) -> Exception:
    """The error to be raised: one that names what Kubernetes does not allow."""
    if error.status != 403:
        return error
    text = (
        f"Kubernetes does not allow the dws module to {what} (see rbac.yaml): {error}"
    )
    return QueryError(errno.EACCES, text)


def _awaits_unmount(job: Job) -> bool:
    """Whether a job's storage awaits nodes that may write to it: its Workflow is marked
    for them, or they are being looked for."""
    view, mounts = job.info.view, job.info.mounts
    if view is None or (view.complete and mounts.none_writes):
        return False  # as long as DWS waits, a node that could not write may come back
    looks = job.step is not None and job.step.step is Step.UNMOUNT
    unfound = mounts.found_at is None and view.desired is State.PostRun
    return view.awaits_unmount or (looks and unfound)


def _check_failed(info: WorkflowInfo) -> WorkflowView:
    """The Workflow of a job whose data could not be copied out, and is not gone."""
    view: Optional[WorkflowView] = info.view
    if view is None or not (view.is_of(info.jobid) and view.copy_failed):
        text = f"job {info.f58}: no data of it has failed and is kept"
    elif view.complete or view.desired is not State.DataOut or view.deleting:
        text = f"job {info.f58}: its storage is not kept any more"
    else:
        return view
    raise QueryError(errno.EINVAL, text)
