# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The state of jobs for queries, from all parts of the service."""

from __future__ import annotations

from itertools import islice
from typing import Callable, Optional, Sequence

from flux_k8s.config.context import Context
from flux_k8s.control.turns import Parts
from flux_k8s.dws import datamovement
from flux_k8s.dws.datamovement import Movement, Progress
from flux_k8s.dws.workflowstate import State
from flux_k8s.jobs.jobrows import Known, Mounts, state_of
from flux_k8s.jobs.jobtable import Job, JobTable
from flux_k8s.jobs.progressmemos import data_text, mount_text
from flux_k8s.jobs.progresswatch import JobObjects, client_mounts
from flux_k8s.rabbits.availability import Availability
from flux_k8s.rfc import hostlist
from flux_k8s.rfc.rset import Allocated

SLICE = 500
"""The most hosts that are encoded in one turn of the reactor: about 2 ms. A longer list
has an expression for each part, at least."""


REASONS = 3
"""The most reasons for which Rabbits take no jobs that the row of a job names."""


class JobFacts:
    """The state of jobs.

    Args:
        jobs: the jobs of the service.
        movements: their data movements.
        changed: is called with a job whose mounts have changed.
    """

    def __init__(
        self,
        context: Context,
        jobs: JobTable,
        machine: Availability,
        movements: JobObjects[Movement],
        changed: Callable[[int], None],
    ) -> None:
        self._jobs = jobs
        self._machine = machine
        self._nodes: dict[int, tuple[Allocated, str, int]] = {}
        self._movements = movements
        self._mounts = client_mounts(context, jobs, changed, machine.is_rabbit)

    def changed(self, jobid: int) -> None:
        """A job has changed: its data movements or mounts may be needed, or not any
        more."""
        job = self._jobs.get(jobid)
        view = None if job is None else job.info.view
        self._movements.need(jobid, view is not None and view.awaits_copies)
        self._mounts.need(jobid, view is not None and view.awaits_mounts)

    def forget(self, jobid: int) -> None:
        self._nodes.pop(jobid, None)
        self._movements.forget(jobid)
        self._mounts.forget(jobid)

    def stop(self) -> None:
        self._movements.stop()
        self._mounts.stop()

    def for_row(self, job: Job, out: str) -> Parts[Known]:
        """The state for the row of a job.

        Args:
            out: :meth:`out_of_service`, which costs too much for each row.
        """
        nodes, nnodes = yield from self._node_text(job)
        return Known(
            nodes=nodes,
            nnodes=nnodes,
            usage=self._machine.free_storage.usage_of(job.info.jobid),
            waits=job.progress.memo or "",
            out=out,
            progress=self.progress(job),
        )

    def for_details(self, job: Job) -> Parts[Known]:
        """The state for the details of a job."""
        nodes, nnodes = yield from self._node_text(job)
        mounting = self._nodes_mounting(job)
        names = (node for node, (_, done) in mounting.items() if not done)
        waiting = yield from encode(sorted(names, key=lambda name: (len(name), name)))
        movements = self._movements.of(job.info.jobid) or {}
        return Known(
            nodes=nodes,
            nnodes=nnodes,
            usage=self._machine.free_storage.usage_of(job.info.jobid),
            waits=job.progress.memo or "",
            out=self.out_of_service(),
            progress=self.progress(job),
            movements=tuple(movements.values()),
            mounts=self.mounts(job),
            waiting=waiting,
        )

    def progress(self, job: Job) -> Optional[Progress]:
        """How far the data movement of a job's state is; None if that is not known."""
        info = job.info
        if info.view is None or not info.view.awaits_copies:
            return None
        movements, state = self._movements.of(info.jobid) or {}, state_of(info)
        return datamovement.progress(m for m in movements.values() if m.phase == state)

    def mounts(self, job: Job) -> Optional[Mounts]:
        """How far mounting or unmounting is in a job's state; None if that is not
        known."""
        found = self._nodes_mounting(job)
        if not found:
            return None
        mounted = sum(mounted for mounted, done in found.values())
        return Mounts(len(found), mounted, sum(done for _, done in found.values()))

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
            f"{hostlist.encode(sorted(rabbits, key=hostlist.natural_key))} ({reason})"
            for reason, rabbits in islice(groups.items(), REASONS)
        )

    def memo(self, jobid: int) -> Optional[str]:
        """The text about a long state for the job's memo; None for a short one."""
        job = self._jobs.get(jobid)
        if job is None or job.info.released:
            return None
        state, progress = state_of(job.info), self.progress(job)
        if progress is not None:
            return data_text(state, progress)
        mounts = self.mounts(job)
        return None if mounts is None else mount_text(state, mounts)

    def _node_text(self, job: Job) -> Parts[tuple[str, int]]:
        """A job's nodes as a hostlist, and their number."""
        jobid, allocation = job.info.jobid, job.info.allocation
        if allocation is None:
            return "", 0
        known = self._nodes.get(jobid)
        if known is None or known[0] is not allocation:
            hosts = tuple(dict.fromkeys(allocation.hosts))
            text = yield from encode(hosts)
            known = allocation, text, len(hosts)
            if jobid in self._jobs:
                self._nodes[jobid] = known
        return known[1], known[2]


def encode(hosts: Sequence[str]) -> Parts[str]:
    """A hostlist; a long one in parts."""
    texts = []
    for begin in range(0, len(hosts), SLICE):
        if begin:
            yield
        texts.append(hostlist.encode(hosts[begin : begin + SLICE]))
    return ",".join(texts)
