# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is known of jobs outside of their ``WorkflowInfo``, and how far their long
states are: for the rows that queries answer with, and in memos for ``flux jobs``.

Memos are volatile: no eventlog grows by them. A job has another one only after a while,
and all jobs together have only so many each second. The memo goes with the state: it is
removed at once, before the job can end with it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Callable, Mapping, Optional

from flux_k8s.config.context import Context
from flux_k8s.control.controller import Controller
from flux_k8s.formats import hostlist
from flux_k8s.jobs.jobrows import NONE, Known, MountCount, state_of
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.optionalwatches import ClientMounts, DataMovements
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.objects import datamovement
from flux_k8s.objects.datamovement import Progress
from flux_k8s.objects.workflowstate import State
from flux_k8s.ports import Flux

REASONS = 3
"""The most reasons for which Rabbits take no jobs that the row of a job names."""


class JobFacts:
    """Finds out what is known of jobs.

    Args:
        movements: their data movements.
        changed: is called with a job whose data movements or mounts have changed.
    """

    def __init__(
        self,
        context: Context,
        jobs: JobTable,
        machine: RabbitManager,
        movements: DataMovements,
        changed: Callable[[int], None],
    ) -> None:
        self._jobs = jobs
        self._machine = machine
        self._movements = movements
        self._mounts = ClientMounts(context, jobs, context.settings.mapping.has)
        movements.changed = self._mounts.changed = changed

    def changed(self, jobid: int) -> None:
        """A job has changed: its data movements or mounts may be needed, or not any
        more."""
        job = self._jobs.get(jobid)
        view = None if job is None else job.info.view
        self._movements.need(jobid, view is not None and view.awaits_copies)
        self._mounts.need(jobid, view is not None and view.awaits_mounts)

    def forget(self, jobid: int) -> None:
        self._movements.forget(jobid)
        self._mounts.forget(jobid)

    def stop(self) -> None:
        self._movements.stop()
        self._mounts.stop()

    def for_row(self, job: Job, out: str) -> Known:
        """The state for the row of a job.

        Args:
            out: :meth:`out_of_service`, which costs too much for each row.
        """
        nodes, nnodes = _nodes(job)
        return Known(
            nodes=nodes,
            nnodes=nnodes,
            usage=self._machine.ledger.usage_of(job.info.jobid),
            waits=job.memo or "",
            out=out,
            progress=self.progress(job),
        )

    def for_details(self, job: Job) -> Known:
        """The state for the details of a job."""
        known = self.for_row(job, self.out_of_service())
        nodes = self._nodes_mounting(job)
        names = [node for node, (_, done) in nodes.items() if not done]
        names = sorted(names, key=lambda name: (len(name), name))
        movements = self._movements.of(job.info.jobid) or {}
        return replace(
            known,
            movements=tuple(movements.values()),
            mounts=_count_mounts(nodes),
            waiting=hostlist.encode(names),
        )

    def memo(self, jobid: int) -> Optional[str]:
        """The text about a long state for a job's memo; None for a short one."""
        job = self._jobs.get(jobid)
        if job is None or job.info.released:
            return None
        state, progress = state_of(job.info), self.progress(job)
        if progress is not None:
            return data_text(state, progress)
        mounts = _count_mounts(self._nodes_mounting(job))
        return None if mounts is None else mount_text(state, mounts)

    def progress(self, job: Job) -> Optional[Progress]:
        """How far the data movement of a job's state is; None if that is not known."""
        info = job.info
        if info.view is None or not info.view.awaits_copies:
            return None
        movements, state = self._movements.of(info.jobid) or {}, state_of(info)
        return datamovement.progress(m for m in movements.values() if m.phase == state)

    def _nodes_mounting(self, job: Job) -> dict[str, tuple[bool, bool]]:
        """Of each node that mounts or unmounts a job's storage now: whether all of it
        is mounted, and whether the node is as the state wants it."""
        view = job.info.view
        found = self._mounts.of(job.info.jobid)
        if view is None or not view.awaits_mounts or not found:
            return {}
        mounting = view.desired is State.PreRun
        nodes: dict[str, tuple[bool, bool]] = {}
        for (node, _), (is_mounted, is_unmounted) in found.items():
            mounted, done = nodes.get(node, (True, True))
            reached = is_mounted if mounting else is_unmounted
            nodes[node] = mounted and is_mounted, done and reached
        return nodes

    def out_of_service(self) -> str:
        """The Rabbits that take no jobs, those with the same reason together."""
        groups: dict[str, list[str]] = {}
        for rabbit, reason in self._machine.rabbits.broken.items():
            groups.setdefault(reason, []).append(rabbit)
        return ", ".join(
            f"{hostlist.encode_sorted(rabbits)} ({reason})"
            for reason, rabbits in islice(groups.items(), REASONS)
        )


def _nodes(job: Job) -> tuple[str, int]:
    """A job's nodes as a hostlist, and their number. To encode those of a whole machine
    takes 10 ms, so the text is kept."""
    allocation, shown = job.info.allocation, job.shown
    if allocation is None:
        return "", 0
    if shown.nodes_of is not allocation:
        hosts = dict.fromkeys(allocation.hosts)
        shown.nodes_of, shown.nodes = allocation, (hostlist.encode(hosts), len(hosts))
    return shown.nodes


def _count_mounts(nodes: Mapping[str, tuple[bool, bool]]) -> Optional[MountCount]:
    """How far mounting or unmounting is; None if that is not known."""
    if not nodes:
        return None
    mounted = sum(mounted for mounted, _ in nodes.values())
    return MountCount(len(nodes), mounted, sum(done for _, done in nodes.values()))


MEMO = "rabbit_progress"

FIRST, INTERVAL = 1.0, 10.0
"""Seconds from a change until the first memo of a job, and until another one."""

MEMOS_PER_SECOND = 10.0
"""The most memos of all jobs, on average."""

RECENT = 3600.0
"""Seconds from the begin of a state for which a memo of an earlier service is looked
for once the state is reached."""


class ProgressMemos:
    """Posts the memos.

    Args:
        text_of: gives the text of a job's memo, None for no memo.
    """

    def __init__(
        self, flux: Flux, jobs: JobTable, text_of: Callable[[int], Optional[str]]
    ) -> None:
        self._flux = flux
        self._jobs = jobs
        self._text_of = text_of
        self._controller = Controller[int](flux, self._reconcile)

    def changed(self, jobid: int) -> None:
        """The memo of a job may have to be another."""
        job = self._jobs.get(jobid)
        if job is not None:
            pause = INTERVAL if job.shown.memo else FIRST
            others = len(self._controller) / MEMOS_PER_SECOND
            self._controller.add(jobid, max(pause, others))

    def note(self, job: Job, before: Optional[str]) -> None:
        """A job is there, or may have changed: remove its memo if its state is another,
        or has been reached.

        Args:
            before: the state that the job was in; None for a job that is new to this
                service, which may have a memo of an earlier one.
        """
        info, shown = job.info, job.shown
        if before is None and shown.memo is None and (info.existed or info.planned):
            shown.memo = ""
        if shown.memo is None:
            return
        view, state = info.view, state_of(info)
        over = state == State.Teardown.name or before not in (None, NONE, state)
        if view is not None and view.complete:
            # Nobody knows which jobs have a memo of an earlier service. Few of those
            # that run do: the others have not just been through PreRun.
            late = view.since is None or self._flux.now() - view.since > RECENT
            over = over or bool(shown.memo) or not late
        if over:
            shown.memo = None
            self._flux.post_memo(info.jobid, {MEMO: None}, volatile=True)

    def forget(self, jobid: int) -> None:
        """A job is over, and takes no memos."""
        self._controller.forget(jobid)

    def stop(self) -> None:
        self._controller.stop()

    async def _reconcile(self, jobid: int) -> None:
        """Post a job's memo if it is another."""
        job, text = self._jobs.get(jobid), self._text_of(jobid)
        if job is None or text is None or text == job.shown.memo:
            return
        job.shown.memo = text
        self._flux.post_memo(jobid, {MEMO: text}, volatile=True)


def data_text(state: str, progress: Progress) -> str:
    """``DataIn 43 %, 2 min left``."""
    text = f"{state} {progress.percent} %"
    return text if progress.left is None else f"{text}, {duration(progress.left)} left"


def mount_text(state: str, mounts: MountCount) -> str:
    """``PreRun 12/16 mounted``, ``PostRun 3/16 unmounted``."""
    what = "mounted" if state == "PreRun" else "unmounted"
    return f"{state} {mounts.done}/{mounts.wanted} {what}"


def duration(seconds: float) -> str:
    """A time in one unit, rounded up."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds > size:
            return f"{int(-(-seconds // size))} {unit}"
    return f"{int(-(-seconds // 1))} s"
