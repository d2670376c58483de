# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The scheduler: first come, first served, within a priority."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence

from flux_k8s.errors import BadObject
from flux_k8s.ports import Clock, Json
from flux_k8s.rfc import constraints
from rabbitsim.flux import rwriter
from rabbitsim.flux.job import Job
from rabbitsim.flux.pool import Grant, Node, Pool, RequestError, count_nodes

UNSATISFIABLE = 'alloc denied due to type="unsatisfiable"'
ANNOTATIONS = {"sched": {"selection_type": "immediate"}}


class Scheduler:
    """Gives resources to jobs that wait for them.

    A job that does not fit now holds back those behind it; one that would not
    fit even if the system were empty is refused.

    Attributes:
        depth: how many of the jobs behind one that does not fit may be started where
            that does not delay it, by the time limits of those that run (Fluxion's
            queue policy ``easy``).
    """

    def __init__(
        self,
        clock: Clock,
        pool: Pool,
        waiting: Callable[[], Sequence[Job]],
        allocated: Callable[[Job, Json, Json], None],
        denied: Callable[[Job, str], None],
    ) -> None:
        self._clock = clock
        self.pool = pool
        self.depth = 0
        self._waiting = waiting
        self._allocated = allocated
        self._denied = denied
        self._by_host = {node.host: node for node in pool.nodes}
        self._grants: dict[int, Grant] = {}
        self._ends: dict[int, tuple[float, int]] = {}
        self._feasible: dict[int, tuple[Any, Any]] = {}
        self._scheduled = False

    def wake(self) -> None:
        """Something changed: look at the queue soon."""
        if not self._scheduled:
            self._scheduled = True
            self._clock.call_later(0.0, self._pass)

    def release(self, job: Job) -> None:
        """A job's resources are free again."""
        self.pool.release(self._grants.pop(job.id, ()))
        self._ends.pop(job.id, None)
        self.wake()

    def node(self, host: str) -> Optional[Node]:
        return self._by_host.get(host)

    def _pass(self) -> None:
        self._scheduled = False
        queue = sorted(self._waiting(), key=lambda job: (-job.priority, job.id))
        queue.reverse()
        while queue:
            job = queue.pop()
            if job.alloc_queued and not self._try(job):
                if self.depth:
                    self._backfill(self._reserve(job), queue[: -self.depth - 1 : -1])
                return

    def _reserve(self, job: Job) -> _Reservation:
        """When a job that does not fit may be started, at the latest. Only nodes are
        counted, not storage."""
        needed = count_nodes(job.jobspec.get("resources"))
        free = self.pool.open_nodes
        for end, nodes in sorted(self._ends.values()):
            free += nodes
            if free >= needed:
                return _Reservation(end, free - needed)
        return _Reservation(float("inf"), 0)

    def _backfill(self, first: _Reservation, others: Sequence[Job]) -> None:
        """Start jobs that are not in the way of the first one."""
        for job in others:
            try:
                needed = count_nodes(job.jobspec.get("resources"))
            except RequestError:
                needed = 0  # it is denied below
            system = job.jobspec.get("attributes", {}).get("system", {})
            seconds = float(system.get("duration") or 0) or float("inf")
            late = self._clock.now() + seconds > first.begin
            if needed > self.pool.open_nodes or (late and needed > first.spare):
                continue
            if job.alloc_queued and self._try(job) and late and job.id in self._ends:
                first.spare -= needed

    def _try(self, job: Job) -> bool:
        """Allocate, or deny. False when the job has to wait."""
        system = job.jobspec.get("attributes", {}).get("system", {})
        resources = job.jobspec.get("resources")
        wanted = resources, system.get("constraints", {})

        def feasible(node: Node) -> bool:
            return constraint.match(node.host, node.rank, node.properties)

        def usable(node: Node) -> bool:
            if not node.up or node.closed:
                return False
            properties = (*node.properties, *node.dynamic)
            return constraint.match(node.host, node.rank, properties)

        try:
            known = self._feasible.get(job.id) == wanted
            if known and count_nodes(resources) > self.pool.open_nodes:
                return False
            constraint = constraints.parse(wanted[1])
            grant = self.pool.allocate(resources, usable)
            if grant is None:
                if known or self.pool.empty().allocate(resources, feasible):
                    self._feasible[job.id] = wanted
                    return False
        except (RequestError, BadObject) as error:
            self._denied(job, f"alloc denied: {error}")
            return True
        self._feasible.pop(job.id, None)
        if grant is None:
            self._denied(job, UNSATISFIABLE)
            return True
        duration = float(system.get("duration") or 0)
        self._grants[job.id] = grant
        end = self._clock.now() + duration if duration else float("inf")
        self._ends[job.id] = end, count_nodes(resources)
        R = rwriter.write(self.pool, grant, self._clock.now(), duration)
        self._allocated(job, R, ANNOTATIONS)
        return True


@dataclass
class _Reservation:
    """Until ``begin`` (UNIX time) all nodes may be used by other jobs, then only
    ``spare`` of those that are free then."""

    begin: float
    spare: int
