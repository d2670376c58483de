# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Makes the storage of jobs that have no nodes yet (DESIGN section 13).

Such a job waits in DEPEND until its data was copied in. Then it may get nodes below the
Rabbits that were chosen for it, and asks the scheduler for no ``ssd``. All of its
storage counts as beyond its share, by the annotation of its Servers: so it is storage
that no job holds, and the scheduler keeps as many ``ssd`` from others until it is gone.
Servers are written only when the scheduler has answered that it does so.

Jobs are staged one at a time, in the order of urgency, then of submission. A job that
lacks room holds up those after it, or else small jobs would keep it waiting for ever;
one whose user has enough holds up those of its user. A job that lacks anything else is
passed over until something has changed. A job that is held, or waits for another
dependency, is not staged: it could not use its storage.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Callable, Iterable, Mapping, Optional, Sequence

from flux_k8s.config.settings import Settings
from flux_k8s.config.stagepolicy import check_limits, no_rabbits
from flux_k8s.control.coroutines import Answer, Call
from flux_k8s.dws.directivebreakdown import (
    Allocation,
    Breakdown,
    below_chassis,
    labelled_hosts,
    requested_chassis,
    requested_nodes,
    ssd_per_node,
)
from flux_k8s.dws.directivebreakdown.breakdown import PER_COMPUTE
from flux_k8s.dws.directives import GIB
from flux_k8s.dws.stagechoice import StageChoice, choose_nodes
from flux_k8s.dws.workflowview import State
from flux_k8s.errors import AllocationError, BadObject, StorageUnavailable
from flux_k8s.jobs.breakdownreader import Breakdowns
from flux_k8s.jobs.machine import Machine
from flux_k8s.jobs.planning import JobPlacement, Planner
from flux_k8s.jobs.proposal import Proposal
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import FAILURES
from flux_k8s.ports import Flux, Json
from flux_k8s.rfc import constraints, hostlist
from flux_k8s.rfc.jobid import f58

KEEPING = 10.0
"""Seconds that the scheduler has for its answer that it keeps storage from others."""


class _NoRoom(StorageUnavailable):
    """Other jobs have the room on the Rabbits that a job needs."""


class _UserBound(StorageUnavailable):
    """Other jobs of the user have what one user may have."""


class Staging:
    """Makes storage ahead.

    Args:
        infos: returns all jobs.
        ask: has a job handled at once.
    """

    def __init__(
        self,
        flux: Flux,
        settings: Settings,
        machine: Machine,
        planner: Planner,
        infos: Callable[[], Iterable[WorkflowInfo]],
        ask: Callable[[int], None],
    ) -> None:
        self._flux = flux
        self._settings = settings
        self._machine = machine
        self._planner = planner
        self._infos = infos
        self._ask = ask
        self._waiting: dict[int, WorkflowInfo] = {}
        self._passed: dict[int, bool] = {}  # whether for the bound of its user

    # Whose turn it is

    def wake(self) -> None:
        """Storage may have become free, or a job may have left the queue."""
        self._passed.clear()
        self._next()

    def forget(self, info: WorkflowInfo) -> None:
        """The job is over."""
        self._waiting.pop(info.jobid, None)
        self.wake()

    def _next(self) -> None:
        """Have the first job of the queue handled."""
        first = self._first()
        if first is not None:
            self._ask(first.jobid)

    def _first(self, job: Optional[WorkflowInfo] = None) -> Optional[WorkflowInfo]:
        """The first job of the queue; for ``job``, that which it has to wait for, or
        itself."""
        queue = [info for info in self._waiting.values() if info.awaits_staging]
        self._waiting = {info.jobid: info for info in queue}
        bounded: dict[Optional[int], WorkflowInfo] = {}
        for info in sorted(queue, key=_turn):
            if self._passed.get(info.jobid):
                bounded.setdefault(info.userid, info)
            elif info is job:
                return bounded.get(info.userid, info)
            elif info.jobid not in self._passed and info.userid not in bounded:
                return info
        return job

    async def stage(self, info: WorkflowInfo) -> tuple[JobPlacement, str]:
        """Write the job's Servers. Return its placement, and the nodes that it may get
        (RFC 29; "" for all).

        Raises:
            StorageUnavailable: it is not the job's turn, or there is no room.
            DWSError, KubeError, RpcError: as :class:`Planner`.
        """
        self._waiting[info.jobid] = info
        self._passed.pop(info.jobid, None)
        first = self._first(info)
        if first is not info and first is not None:
            raise StorageUnavailable(f"{f58(first.jobid)} gets its storage before")
        allowed: list[str] = []
        choose = partial(self._choose, info, allowed)
        keep = partial(self._keep, info)
        try:
            placement = await self._planner.place_ahead(info, choose, keep)
        except _NoRoom:
            raise
        except FAILURES as error:
            self._passed[info.jobid] = isinstance(error, _UserBound)
            self._next()
            raise
        return placement, hostlist.encode(allowed)

    # Where there is room

    def _choose(
        self,
        info: WorkflowInfo,
        allowed: list[str],
        breakdowns: Breakdowns,
        colocated: Mapping[str, frozenset[str]],
        room: Mapping[str, int],
    ) -> Allocation:
        """Choose Rabbits, as if the job had nodes below them.

        Args:
            allowed: gets the nodes that the job may get; stays empty for all nodes.
            room: the bytes that are left on each Rabbit.
        """
        assert info.request is not None
        resources = info.request.resources
        nodes = requested_nodes(resources)
        share = ssd_per_node(breakdowns, nodes) * GIB
        mapping, rabbits = self._settings.mapping, self._machine.rabbits
        sizes = self._machine.free_storage.sizes
        fit = partial(
            choose_nodes,
            nodes,
            share,
            own=self._bytes_of(info.jobid),
            chassis=requested_chassis(resources) or 0,
            spread=self._machine.spreads,
        )
        possible = self._below(info, breakdowns, nodes, any_state=True)
        if fit(possible, sizes) is None:
            raise no_rabbits(nodes, share)
        self._check_bounds(info, share * nodes)
        below = self._below(info, breakdowns, nodes, any_state=False)
        if fit(below, sizes) is None:
            raise StorageUnavailable(
                "the Rabbits, or nodes, that it needs do not serve"
            )
        free = self._machine.bytes_free(info.jobid)
        if not free:
            raise _NoRoom("the scheduler has not said yet what is free")
        room = {name: min(size, free.get(name, 0)) for name, size in room.items()}
        choice = fit(below, room)
        if choice is None:
            raise _NoRoom("others' storage: no Rabbits have room")
        if any(map(_needs_nodes_near, breakdowns)):
            allowed[:] = choice.allowed
        return Allocation(
            hosts=choice.hosts,
            nodes_per_rabbit=_per_rabbit(choice, mapping.rabbits_of(choice.hosts)),
            room=room,
            storages=rabbits.labels,
            broken_rabbits=rabbits.broken,
            colocated=colocated,
        )

    def _below(
        self, info: WorkflowInfo, breakdowns: Breakdowns, nodes: int, any_state: bool
    ) -> Mapping[str, Sequence[str]]:
        """The nodes that the job may get, by Rabbit. With ``any_state``, whether these
        serve now or not."""
        mapping, rabbits = self._settings.mapping, self._machine.rabbits
        hosts = self._allowed(info)
        labelled = labelled_hosts(breakdowns, rabbits.all_labels, mapping, nodes)
        if labelled is not None:
            hosts &= labelled
        states = self._machine.nodes.states
        if states is not None and not any_state:
            hosts -= states.offline.union(states.drained, self._machine.avoided)
        return {
            rabbit: [host for host in mapping.hosts_of(rabbit) if host in hosts]
            for rabbit in mapping.rabbits
            if any_state or rabbit not in rabbits.broken
        }

    def _allowed(self, info: WorkflowInfo) -> frozenset[str]:
        """The nodes that the job's own constraints allow.

        Raises:
            StorageUnavailable: the nodes are not known yet.
            BadObject: the constraints are not as RFC 31 says.
        """
        states = self._machine.nodes.states
        if states is None or not self._machine.free_storage.listed:
            raise _NoRoom("the nodes, or the storage in use, are not known yet")
        assert info.request is not None
        wanted = info.request.constraints
        return states.matching(constraints.parse({} if wanted is None else wanted))

    def _check_bounds(self, info: WorkflowInfo, size: int) -> None:
        """Bound the storage of jobs without nodes."""
        config = self._settings.config
        machine = sum(self._machine.free_storage.sizes.values())
        check_limits(size, machine, config)
        held: Counter[Optional[int]] = Counter()
        for other in self._infos():
            if other.stages_ahead and other is not info:
                held[other.userid] += sum(self._bytes_of(other.jobid).values())
        if size + sum(held.values()) > machine * config.stage_limit / 100:
            raise _NoRoom("rabbit.stage_limit is reached")
        if size + held[info.userid] > machine * config.stage_user_limit / 100:
            raise _UserBound("rabbit.stage_user_limit is reached")

    def _bytes_of(self, jobid: int) -> Counter[str]:
        """The storage that a job has, by Rabbit."""
        usage: Counter[str] = Counter()
        for servers in self._machine.free_storage.usage_of(jobid).values():
            usage.update(servers.unavailable)
        return usage

    async def _keep(self, info: WorkflowInfo) -> None:
        """Wait until the scheduler keeps the chosen storage from others.

        Raises:
            StorageUnavailable: other jobs have got it meanwhile, or there was no answer
                in time.
        """
        if not await Call(partial(self._when_kept, info.jobid)):
            raise StorageUnavailable("the scheduler does not answer about its storage")
        try:
            given_out = await self._machine.is_given_out(info.jobid)
        except BadObject as error:  # in the answer of the scheduler
            raise StorageUnavailable(str(error)) from None
        if given_out:
            raise _NoRoom("others' storage: the scheduler has given it out")

    def _when_kept(self, jobid: int, answer: Answer) -> None:
        waits = True

        def done(kept: bool) -> None:
            nonlocal waits
            if waits:
                waits = False
                timer.cancel()
                answer(kept)

        timer = self._flux.call_later(KEEPING, partial(done, False))
        self._machine.when_withheld(jobid, partial(done, True))

    # When its data is there

    def proposal(self, info: WorkflowInfo) -> Proposal:
        """The job's request to the scheduler: for no ``ssd``, and for nodes below its
        Rabbits."""
        assert info.request is not None and info.view is not None
        resources = info.request.resources
        where: Optional[Json] = None
        if info.view.staged_for:
            names = hostlist.decode(info.view.staged_for)
            where = constraints.only_hosts(names)
            nodes = requested_nodes(resources)
            left = len(self._allowed(info).intersection(names))
            if left < nodes:
                raise AllocationError(
                    f"its constraints leave it {left} nodes where its data is; please"
                    " submit it again"
                )
            rabbits = set(self._settings.mapping.rabbits_of(names).values())
            evenly = len(rabbits) > 1 and len(names) > nodes
            if evenly and requested_chassis(resources) == 0:
                resources = below_chassis(resources, len(rabbits))
        exclude = constraints.conjunction(self._machine.constraint(), where)
        return Proposal(list(resources), exclude)

    def note_lost(self, info: WorkflowInfo) -> None:
        """Note whether a Rabbit broke that has the data of a job without nodes."""
        view = info.view
        if not info.is_staged or view is None or (view.desired or 0) > State.DataIn:
            return
        lost = self._machine.rabbits.lost
        names = self._machine.free_storage.rabbits_of(info.jobid) & lost.keys()
        info.lost_storage = ", ".join(
            f"Rabbit {name} is {lost[name]}"
            for name in sorted(names, key=hostlist.natural_key)
        )


def _turn(info: WorkflowInfo) -> tuple[int, int]:
    """The place of a job in the queue."""
    assert info.request is not None
    return -info.request.urgency, info.jobid


def _needs_nodes_near(breakdown: Breakdown) -> bool:
    """Whether the job's nodes must be below the Rabbits of this storage."""
    sets = breakdown.allocation_sets
    return any(s.strategy == PER_COMPUTE for s in sets) or any(
        map(breakdown.needs_pcie, range(len(sets)))
    )


def _per_rabbit(
    choice: StageChoice, rabbit_of: Mapping[str, Optional[str]]
) -> dict[str, int]:
    return dict(Counter(str(rabbit_of[host]) for host in choice.hosts))
