# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Makes the storage of jobs that have no nodes yet (DESIGN section 13).

Such a job waits in DEPEND until its data was copied in. Then it may get nodes below the
Rabbits that were chosen for it, and asks the scheduler for no ``ssd``. All of its
storage counts as beyond its share, by the annotation of its Servers: so it is storage
that no job holds, and the scheduler keeps as many ``ssd`` from others until it is gone.
Servers are written only when the scheduler has answered that it does so.

Jobs are staged one at a time, in the order of urgency, then of submission. A job that
lacks room on Rabbits has as many as it needs kept from those after it, or else small
jobs would keep it waiting for ever, and holds up those of its user. So does one whose
user has enough. Users do not hold up each other by that: of each, one job has Rabbits
kept for it. A job that lacks anything else of its own is passed over until something
has changed. A job that is held, or waits for another dependency, is not staged: it
could not use its storage.

To choose Rabbits takes milliseconds on a large machine, and a guest's change of urgency
would have them chosen again each time. So no job is tried twice within :data:`PAUSE`,
and few of those that were passed over are at once.
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
    apply_breakdowns,
    below_chassis,
    labelled_hosts,
    requested_chassis,
    requested_nodes,
    requested_per_node,
    ssd_per_node,
)
from flux_k8s.dws.directivebreakdown.breakdown import PER_COMPUTE
from flux_k8s.dws.directives import GIB
from flux_k8s.dws.mapping import RabbitMapping
from flux_k8s.dws.stagechoice import NodeTimes, choose_nodes
from flux_k8s.dws.workflowview import State
from flux_k8s.errors import AllocationError, BadObject, StorageUnavailable
from flux_k8s.jobs.breakdownreader import Breakdowns
from flux_k8s.jobs.machine import Machine
from flux_k8s.jobs.planning import JobPlacement, Planner
from flux_k8s.jobs.proposal import Proposal
from flux_k8s.jobs.workflowinfo import WorkflowInfo
from flux_k8s.jobs.workflowrequests import FAILURES
from flux_k8s.ports import Flux, Json, Timer
from flux_k8s.rfc import constraints, hostlist
from flux_k8s.rfc.jobid import f58

KEEPING = 10.0
"""Seconds that the scheduler has for its answer that it keeps storage from others."""

PAUSE = 1.0
"""Seconds until a job that could not be staged is tried again, and from a change until
such jobs are: changes come many at once."""


SPACING = 0.05
"""Seconds between two jobs that are tried again without a change. Thousands may wait
for nodes that do not serve."""


class _NoRoom(StorageUnavailable):
    """Nothing can be staged now, or jobs without nodes have all that they may have."""


class _Full(StorageUnavailable):
    """Other jobs have the room on the Rabbits that a job needs.

    Attributes:
        rabbits: are kept for the job.
    """

    def __init__(self, text: str, rabbits: Iterable[str]) -> None:
        super().__init__(text)
        self.rabbits = frozenset(rabbits)


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
        self._passed: dict[int, bool] = {}  # whether it holds up those of its user
        self._first: Optional[WorkflowInfo] = None  # if known
        self._first_of: dict[Optional[int], WorkflowInfo] = {}  # of users held up
        self._kept: dict[int, frozenset[str]] = {}
        self._tried: dict[int, tuple[float, str]] = {}
        self._retried = 0.0
        self._timer: Optional[Timer] = None

    # Whose turn it is

    def wake(self) -> None:
        """Storage may have become free: try jobs again that lack it."""
        if self._timer is None:
            self._timer = self._flux.call_later(PAUSE, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        self._passed = {jobid: False for jobid, up in self._passed.items() if not up}
        self.go_on()

    def forget(self, info: WorkflowInfo) -> None:
        """The job is over."""
        self._leave(info)
        self.wake()

    def _leave(self, info: WorkflowInfo) -> None:
        """The job is not in the queue any more."""
        for table in (self._waiting, self._passed, self._kept, self._tried):
            table.pop(info.jobid, None)

    def go_on(self) -> None:
        """A job may have left the queue: have the first one handled."""
        self._first = None
        first = self._find_first()
        if first is not None:
            self._ask(first.jobid)

    def _find_first(self, job: Optional[WorkflowInfo] = None) -> Optional[WorkflowInfo]:
        """The first job of the queue; for ``job``, that which it has to wait for, or
        itself."""
        for info in tuple(self._waiting.values()):
            if not info.awaits_staging:
                self._leave(info)
        self._first_of.clear()
        for info in sorted(self._waiting.values(), key=_turn):
            if info is job:
                return self._first_of.get(info.userid, info)
            if self._passed.get(info.jobid):
                self._first_of.setdefault(info.userid, info)
            elif info.jobid not in self._passed and info.userid not in self._first_of:
                self._first = info
                return info
        return job

    def _before(self, job: WorkflowInfo) -> Optional[WorkflowInfo]:
        """The job that another has to wait for. Of thousands, each asks for it."""
        held_up = self._first_of.get(job.userid)
        for info, up in ((self._first, None), (held_up, True)):
            if info is None or info is job or not info.awaits_staging:
                continue
            if self._passed.get(info.jobid) is up and _turn(info) < _turn(job):
                return info
        first = self._find_first(job)
        return None if first is job else first

    async def stage(self, info: WorkflowInfo) -> tuple[JobPlacement, str]:
        """Write the job's Servers. Return its placement, and the nodes that it may get
        (RFC 29; "" for all).

        Raises:
            StorageUnavailable: it is not the job's turn, or there is no room.
            DWSError, KubeError, RpcError: as :class:`Planner`.
        """
        self._waiting[info.jobid] = info
        self._check_pause(info)
        before = self._before(info)
        if before is not None:
            raise StorageUnavailable(f"{f58(before.jobid)} gets its storage before")
        self._passed.pop(info.jobid, None)
        self._kept.pop(info.jobid, None)
        await self._machine.node_use.update()
        allowed: list[str] = []
        choose = partial(self._choose, info, allowed)
        keep = partial(self._keep, info)
        try:
            placement = await self._planner.place_ahead(info, choose, keep)
        except FAILURES as error:
            self._note_failed(info, error)
            raise
        return placement, hostlist.encode(allowed)

    def _check_pause(self, info: WorkflowInfo) -> None:
        """Refuse a job that was tried a moment ago, for the same reason."""
        if info.jobid not in self._tried:
            return
        now, (at, reason) = self._flux.now(), self._tried[info.jobid]
        if abs(now - at) < PAUSE:
            raise StorageUnavailable(reason)
        if info.jobid in self._passed:
            if abs(now - self._retried) < SPACING:
                raise StorageUnavailable(reason)
            self._retried = now

    def _note_failed(self, info: WorkflowInfo, error: Exception) -> None:
        """A job could not be staged: pass over it, unless none can be staged."""
        if isinstance(error, StorageUnavailable):
            self._tried[info.jobid] = self._flux.now(), str(error)
        if isinstance(error, _NoRoom):
            return
        if isinstance(error, _Full):
            self._kept[info.jobid] = error.rabbits
        self._passed[info.jobid] = isinstance(error, (_Full, _UserBound))
        self.go_on()

    def _kept_before(self, job: WorkflowInfo) -> frozenset[str]:
        """The Rabbits that are kept for jobs that come before ``job``."""
        found: set[str] = set()
        for jobid, rabbits in self._kept.items():
            info = self._waiting[jobid]
            if info.awaits_staging and _turn(info) < _turn(job):
                found |= rabbits
        return frozenset(found)

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
            own=self._machine.free_storage.bytes_of(info.jobid),
            chassis=requested_chassis(resources) or 0,
            spread=self._machine.spreads,
        )
        possible = self._possible(info, breakdowns, nodes)
        if fit(possible, sizes) is None:
            raise no_rabbits(nodes, share)
        self._check_bounds(info, share * nodes, sum(sizes.values()))
        below = self._serving(possible)
        if fit(below, sizes) is None:
            raise StorageUnavailable(
                "the Rabbits, or nodes, that it needs do not serve"
            )
        free = self._machine.bytes_free(info.jobid)
        if not free:
            raise _NoRoom("the scheduler has not said yet what is free")
        room = {name: min(size, free.get(name, 0)) for name, size in room.items()}
        kept = self._kept_before(info)
        below = {rabbit: below[rabbit] for rabbit in below if rabbit not in kept}
        near = any(map(_needs_nodes_near, breakdowns))
        choice = fit(below, room, times=self._node_times() if near else None)
        if choice is None:
            alone = self._machine.free_storage.left((), lasting=True)
            later = fit(below, alone, own=room)
            hosts = () if later is None else later.hosts
            raise _Full(
                "others' storage: no Rabbits have room", _rabbits(mapping, hosts)
            )
        if near:
            allowed[:] = choice.allowed
        return Allocation(
            hosts=choice.hosts,
            nodes_per_rabbit=dict(_rabbits(mapping, choice.hosts)),
            room=room,
            storages=rabbits.labels,
            broken_rabbits=rabbits.broken,
            colocated=colocated,
        )

    def _node_times(self) -> NodeTimes:
        """Which nodes jobs have, and wait for where their data is."""
        awaited: Counter[str] = Counter()
        for info in self._infos():
            if info.stages_ahead and info.view is not None and info.view.staged_for:
                awaited += self._machine.free_storage.allocations_of(info.jobid)
        until = self._machine.node_use.until
        return NodeTimes(self._flux.now(), until, awaited)

    def _possible(
        self, info: WorkflowInfo, breakdowns: Breakdowns, nodes: int
    ) -> Mapping[str, Sequence[str]]:
        """The nodes that the job may get, by Rabbit, whether these serve now or not."""
        mapping = self._settings.mapping
        hosts = self._allowed(info)
        labels = self._machine.rabbits.all_labels
        labelled = labelled_hosts(breakdowns, labels, mapping, nodes)
        if labelled is not None:
            hosts &= labelled
        below = {rabbit: mapping.hosts_of(rabbit) for rabbit in mapping.rabbits}
        return {
            rabbit: names
            if hosts.issuperset(names)
            else [name for name in names if name in hosts]
            for rabbit, names in below.items()
        }

    def _serving(
        self, below: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Those of the nodes that serve now, below Rabbits that do."""
        states, broken = self._machine.nodes.states, self._machine.rabbits.broken
        away = frozenset(self._machine.avoided)
        if states is not None:
            away = away.union(states.offline, states.drained)
        return {
            rabbit: names
            if away.isdisjoint(names)
            else [name for name in names if name not in away]
            for rabbit, names in below.items()
            if rabbit not in broken
        }

    def _allowed(self, info: WorkflowInfo) -> frozenset[str]:
        """The nodes that the job's own constraints allow, and that have the cores and
        GPUs that it needs. If none has, by R, that is for the scheduler to say.

        Raises:
            StorageUnavailable: the nodes are not known yet.
            BadObject: the constraints are not as RFC 31 says.
        """
        states = self._machine.nodes.states
        if states is None or not self._machine.free_storage.listed:
            raise _NoRoom("the nodes, or the storage in use, are not known yet")
        assert info.request is not None
        wanted = info.request.constraints
        hosts = states.matching(constraints.parse({} if wanted is None else wanted))
        needed = requested_per_node(info.request.resources)
        return hosts - states.lacking(needed) or hosts

    def _check_bounds(self, info: WorkflowInfo, size: int, machine: int) -> None:
        """Bound the storage of jobs without nodes, of that of the whole machine."""
        config = self._settings.config
        check_limits(size, machine, config)
        held: Counter[Optional[int]] = Counter()
        for other in self._infos():
            if other.holds_ahead and other is not info:
                held[other.userid] += sum(
                    self._machine.free_storage.bytes_of(other.jobid).values()
                )
        if size + sum(held.values()) > machine * config.stage_limit / 100:
            raise _NoRoom("rabbit.stage_limit is reached")
        if size + held[info.userid] > machine * config.stage_user_limit / 100:
            raise _UserBound("rabbit.stage_user_limit is reached")

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
            rabbits = self._machine.free_storage.rabbits_of(info.jobid)
            text = "others' storage: the scheduler has given it out"
            raise _Full(text, rabbits)

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
        # A request may have been made of the jobspec of a job that had storage.
        resources = apply_breakdowns((), info.request.resources)
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
        return Proposal(resources, exclude)

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


def _rabbits(mapping: RabbitMapping, hosts: Sequence[str]) -> Counter[str]:
    """How many of the nodes each Rabbit has. All of them are below one."""
    return Counter(map(str, mapping.rabbits_of(hosts).values()))
