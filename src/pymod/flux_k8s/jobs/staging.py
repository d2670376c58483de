# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Makes the storage of jobs that have no nodes yet (DESIGN section 13).

Such a job waits in DEPEND until its data was copied in. Then it may get nodes below the
Rabbits that were chosen for it, and asks the scheduler for no ``ssd``. All of its
storage counts as beyond its share, by the annotation of its Servers: so it is storage
that no job holds, and the scheduler keeps as many ``ssd`` from others until it is gone.
Servers are written only when the scheduler has answered that it does so.

Jobs are staged one at a time, in the order of urgency, then of submission. A job that
lacks room holds up those after it, or else small jobs would keep it waiting for ever. A
job that lacks anything else is passed over until something has changed. A job that is
held, or waits for another dependency, is not staged: it could not use its storage.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import AbstractSet, Callable, Iterable, Mapping, Optional, Sequence

from flux_k8s.config.settings import Settings
from flux_k8s.control.coroutines import Answer, Call
from flux_k8s.dws.directivebreakdown import (
    Allocation,
    Breakdown,
    labelled_hosts,
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
from flux_k8s.ports import Flux, Json
from flux_k8s.rfc import constraints, hostlist
from flux_k8s.rfc.jobid import f58

KEEPING = 10.0
"""Seconds that the scheduler has for its answer that it keeps storage from others."""


class _NoRoom(StorageUnavailable):
    """Other jobs have the room on the Rabbits that a job needs."""


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
        self._passed: set[int] = set()
        self._anyone_waits = False

    # Whose turn it is

    def wake(self) -> None:
        """Storage may have become free, or a job may have left the queue."""
        if self._anyone_waits:
            self._passed.clear()
            self._next()

    def _next(self) -> None:
        """Have the first job of the queue handled."""
        first = min(self._queue(), key=_turn, default=None)
        self._anyone_waits = first is not None or bool(self._passed)
        if first is not None:
            self._ask(first.jobid)

    def _queue(self) -> Iterable[WorkflowInfo]:
        return (
            info
            for info in self._infos()
            if info.awaits_staging and info.jobid not in self._passed
        )

    async def stage(self, info: WorkflowInfo) -> tuple[JobPlacement, str]:
        """Write the job's Servers. Return its placement, and the nodes that it may get
        (RFC 29; "" for all).

        Raises:
            StorageUnavailable: it is not the job's turn, or there is no room.
            DWSError, KubeError, RpcError: as :class:`Planner`.
        """
        self._anyone_waits = True
        self._passed.discard(info.jobid)
        first = min(self._queue(), key=_turn, default=info)
        if first is not info:
            raise StorageUnavailable(f"{f58(first.jobid)} gets its storage before")
        allowed: list[str] = []
        choose = partial(self._choose, info, allowed)
        keep = partial(self._keep, info)
        try:
            placement = await self._planner.place_ahead(info, choose, keep)
        except _NoRoom:
            raise
        except StorageUnavailable:
            self._passed.add(info.jobid)
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
        nodes = requested_nodes(info.request.resources)
        share = ssd_per_node(breakdowns, nodes) * GIB
        mapping, rabbits = self._settings.mapping, self._machine.rabbits
        sizes = self._machine.free_storage.sizes
        possible = self._below(info, breakdowns, nodes, any_state=True)
        if choose_nodes(nodes, share, possible, sizes, {}) is None:
            raise AllocationError(
                f"no Rabbits have room for {nodes} nodes of {share // GIB} GiB each"
                " that may get this job"
            )
        self._check_bounds(info, share * nodes)
        below = self._below(info, breakdowns, nodes, any_state=False)
        if choose_nodes(nodes, share, below, sizes, {}) is None:
            raise StorageUnavailable(
                "the Rabbits, or nodes, that it needs do not serve"
            )
        free = self._machine.bytes_free(info.jobid)
        if not free:
            raise _NoRoom("the scheduler has not said yet what is free")
        room = {name: min(size, free.get(name, 0)) for name, size in room.items()}
        choice = choose_nodes(nodes, share, below, room, self._bytes_of(info.jobid))
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
        states = self._machine.nodes.states
        if states is None or not self._machine.free_storage.listed:
            raise _NoRoom("the nodes, or the storage in use, are not known yet")
        labelled = labelled_hosts(breakdowns, rabbits.all_labels, mapping, nodes)
        assert info.request is not None
        wanted = info.request.constraints
        constraint = constraints.parse({} if wanted is None else wanted)
        away: AbstractSet[str] = frozenset()
        if not any_state:
            away = states.offline.union(states.drained, self._machine.avoided)
        properties: dict[str, set[str]] = {}
        for name, having in states.properties.items():
            for host in having:
                properties.setdefault(host, set()).add(name)

        def may_have(host: str) -> bool:
            return (
                host not in away
                and (labelled is None or host in labelled)
                and constraint.match(host, -1, properties.get(host, ()))
            )

        known = frozenset(states.hosts)
        return {
            rabbit: [h for h in mapping.hosts_of(rabbit) if h in known and may_have(h)]
            for rabbit in mapping.rabbits
            if any_state or rabbit not in rabbits.broken
        }

    def _check_bounds(self, info: WorkflowInfo, size: int) -> None:
        """Bound the storage of jobs without nodes."""
        config = self._settings.config
        machine = sum(self._machine.free_storage.sizes.values())
        staged = [
            (other.userid, sum(self._bytes_of(other.jobid).values()))
            for other in self._infos()
            if other.stages_ahead and other is not info
        ]
        bounds = (
            ("stage_limit", config.stage_limit, [n for _, n in staged]),
            (
                "stage_user_limit",
                config.stage_user_limit,
                [n for user, n in staged if user == info.userid],
            ),
        )
        for key, limit, held in bounds:
            most = machine * limit / 100
            if size > most:
                raise AllocationError(
                    f"it needs {size // GIB} GiB; jobs without nodes may have"
                    f" {int(most) // GIB} GiB (rabbit.{key})"
                )
            if size + sum(held) > most:
                raise StorageUnavailable(f"rabbit.{key} is reached")

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
        answered: list[bool] = []

        def done(kept: bool) -> None:
            if not answered:
                answered.append(kept)
                answer(kept)

        self._flux.call_later(KEEPING, partial(done, False))
        self._machine.when_withheld(jobid, partial(done, True))

    # When its data is there

    def proposal(self, info: WorkflowInfo) -> Proposal:
        """The job's request to the scheduler: for no ``ssd``, and for nodes below its
        Rabbits."""
        assert info.request is not None and info.view is not None
        names = info.view.staged_for
        where: Optional[Json] = None
        if names:
            where = constraints.only_hosts(hostlist.decode(names))
        exclude = constraints.conjunction(self._machine.constraint(), where)
        return Proposal(list(info.request.resources), exclude)

    def note_lost(self, info: WorkflowInfo) -> None:
        """Note whether a Rabbit broke that has the data of a job without nodes."""
        view = info.view
        if not info.is_staged or view is None or (view.desired or 0) > State.DataIn:
            return
        broken = self._machine.rabbits.broken
        lost = self._machine.free_storage.rabbits_of(info.jobid) & broken.keys()
        info.lost_storage = ", ".join(
            f"Rabbit {name} is {broken[name]}"
            for name in sorted(lost, key=hostlist.natural_key)
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
