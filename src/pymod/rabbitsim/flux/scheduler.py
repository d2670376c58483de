# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The scheduler: first come, first served, within a priority."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Any, Callable, Collection, Iterable, Optional, Sequence

from flux_k8s.errors import BadObject
from flux_k8s.formats import constraints
from flux_k8s.formats.constraints import Constraint
from flux_k8s.ports import Clock, Json
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
        self._ends: dict[int, tuple[float, frozenset[int]]] = {}
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
        """When a job that does not fit may be started, at the latest, and on which
        nodes. Storage is not counted: the nodes may be free already."""
        resources = job.jobspec.get("resources")
        constraint = constraints.parse(_constraints(job))
        ends = {
            rank: end
            for end, ranks in sorted(self._ends.values(), key=itemgetter(0))
            for rank in ranks
        }
        free_at = {
            node.rank: ends.get(node.rank, 0.0)
            for node in self.pool.nodes
            if _is_usable(node, constraint)
        }

        def grant_at(time: float) -> Optional[Grant]:
            return self.pool.empty().allocate(
                resources, lambda node: free_at.get(node.rank, inf) <= time
            )

        times = sorted(free_at.values())
        next_end = min(ends.values(), default=inf)
        found = _Reservation(inf, frozenset())
        # Before times[first] too few nodes are free.
        at = first = max(0, count_nodes(resources) - 1)
        last = len(times)
        while first < last:
            grant = grant_at(times[at])
            if grant is None:
                first = at + 1
            else:
                last = at
                found = _Reservation(max(times[at], next_end), _ranks(grant))
            at = (first + last) // 2
        return found

    def _backfill(self, first: _Reservation, others: Sequence[Job]) -> None:
        """Start jobs that are not in the way of the first one."""
        kept = self._count_open(first.ranks)
        for job in others:
            try:
                needed = count_nodes(job.jobspec.get("resources"))
            except RequestError:
                needed = 0  # it is denied below
            late = self._clock.now() + (_duration(job) or inf) > first.begin
            if needed > self.pool.open_nodes - (kept if late else 0):
                continue
            if job.alloc_queued and self._try(job, first.ranks if late else ()):
                kept = self._count_open(first.ranks)

    def _count_open(self, ranks: Iterable[int]) -> int:
        return sum(self.pool.is_open(self.pool.nodes[rank]) for rank in ranks)

    def _try(self, job: Job, avoided: Collection[int] = ()) -> bool:
        """Allocate, or deny. False when the job has to wait.

        Args:
            avoided: the ranks of nodes that it must not get now.
        """
        resources = job.jobspec.get("resources")
        wanted = resources, _constraints(job)
        try:
            known = self._feasible.get(job.id) == wanted
            if known and count_nodes(resources) > self.pool.open_nodes:
                return False
            constraint = constraints.parse(wanted[1])
            grant = self.pool.allocate(
                resources,
                lambda node: node.rank not in avoided and _is_usable(node, constraint),
            )
            if grant is None:
                if known or self.pool.empty().allocate(
                    resources,
                    lambda node: constraint.match(
                        node.host, node.rank, node.properties
                    ),
                ):
                    self._feasible[job.id] = wanted
                    return False
        except (RequestError, BadObject) as error:
            self._denied(job, f"alloc denied: {error}")
            return True
        self._feasible.pop(job.id, None)
        if grant is None:
            self._denied(job, UNSATISFIABLE)
            return True
        duration = _duration(job)
        self._grants[job.id] = grant
        self._ends[job.id] = self._clock.now() + (duration or inf), _ranks(grant)
        R = rwriter.write(self.pool, grant, self._clock.now(), duration)
        self._allocated(job, R, ANNOTATIONS)
        return True


@dataclass(frozen=True)
class _Reservation:
    """Until ``begin`` (UNIX time) all nodes may be used by other jobs, then all but
    those with these ``ranks``."""

    begin: float
    ranks: frozenset[int]


def _constraints(job: Job) -> Any:
    """The constraints of a job (RFC 31)."""
    return _system(job).get("constraints", {})


def _duration(job: Job) -> float:
    """The time limit of a job in seconds; 0 for none."""
    return float(_system(job).get("duration") or 0)


def _system(job: Job) -> Json:
    found: Json = job.jobspec.get("attributes", {}).get("system", {})
    return found


def _is_usable(node: Node, constraint: Constraint) -> bool:
    """Whether a job with a constraint may get a node now."""
    properties = (*node.properties, *node.dynamic)
    return (
        node.up
        and not node.closed
        and constraint.match(node.host, node.rank, properties)
    )


def _ranks(grant: Grant) -> frozenset[int]:
    """The nodes of a grant."""
    return frozenset(part.owner for part in grant if part.type == "core")
