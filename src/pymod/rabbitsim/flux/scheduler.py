# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The scheduler: first come, first served, within a priority."""

from __future__ import annotations

from typing import Callable, Optional, Sequence

from flux_k8s.errors import BadObject
from flux_k8s.ports import Clock, Json
from flux_k8s.rfc import constraints
from rabbitsim.flux import rwriter
from rabbitsim.flux.job import Job
from rabbitsim.flux.pool import Grant, Node, Pool, RequestError

UNSATISFIABLE = 'alloc denied due to type="unsatisfiable"'
ANNOTATIONS = {"sched": {"selection_type": "immediate"}}


class Scheduler:
    """Gives resources to jobs that wait for them.

    A job that does not fit now holds back those behind it; one that would not
    fit even if the system were empty is refused.
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
        self._waiting = waiting
        self._allocated = allocated
        self._denied = denied
        self._by_host = {node.host: node for node in pool.nodes}
        self._grants: dict[int, Grant] = {}
        self._scheduled = False

    def wake(self) -> None:
        """Something changed: look at the queue soon."""
        if not self._scheduled:
            self._scheduled = True
            self._clock.call_later(0.0, self._pass)

    def release(self, job: Job) -> None:
        """A job's resources are free again."""
        self.pool.release(self._grants.pop(job.id, ()))
        self.wake()

    def node(self, host: str) -> Optional[Node]:
        return self._by_host.get(host)

    def _pass(self) -> None:
        self._scheduled = False
        queue = sorted(self._waiting(), key=lambda job: (-job.priority, job.id))
        for job in queue:
            if job.alloc_queued and not self._try(job):
                return

    def _try(self, job: Job) -> bool:
        """Allocate, or deny. False when the job has to wait."""
        system = job.jobspec.get("attributes", {}).get("system", {})
        resources = job.jobspec.get("resources")

        def feasible(node: Node) -> bool:
            return constraint.match(node.host, node.rank, node.properties)

        def usable(node: Node) -> bool:
            if not node.up or node.closed:
                return False
            properties = (*node.properties, *node.dynamic)
            return constraint.match(node.host, node.rank, properties)

        try:
            constraint = constraints.parse(system.get("constraints", {}))
            grant = self.pool.allocate(resources, usable)
            if grant is None and self.pool.empty().allocate(resources, feasible):
                return False
        except (RequestError, BadObject) as error:
            self._denied(job, f"alloc denied: {error}")
            return True
        if grant is None:
            self._denied(job, UNSATISFIABLE)
            return True
        self._grants[job.id] = grant
        duration = float(system.get("duration") or 0)
        R = rwriter.write(self.pool, grant, self._clock.now(), duration)
        self._allocated(job, R, ANNOTATIONS)
        return True
