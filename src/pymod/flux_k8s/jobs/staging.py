# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Makes the storage of jobs that have no nodes yet.

Such a job waits in DEPEND until its data was copied in. Then it may get nodes below the
Rabbits that were chosen for it, and asks the scheduler for no ``ssd``. All of its
storage counts as beyond its share, by the annotation of its Servers: so it is storage
that no job holds, and the scheduler keeps as many ``ssd`` from others until it is gone.
Servers are written only when the scheduler has answered that it does so.

The jobs wait for their turn in :mod:`flux_k8s.jobs.turns`. Here is found where
there is room for the one whose turn it is.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Callable, Mapping, Optional, Sequence

from flux_k8s.config.context import Context
from flux_k8s.config.policy import (
    check_maximums,
    check_stage_limits,
    no_rabbits,
)
from flux_k8s.control.coroutines import Answer, Call
from flux_k8s.errors import (
    AllocationError,
    BadObject,
    DirectiveError,
    StorageUnavailable,
)
from flux_k8s.formats import constraints, hostlist
from flux_k8s.formats.directives import GIB
from flux_k8s.jobs.jobtable import JobTable
from flux_k8s.jobs.placement import Placement, Proposal
from flux_k8s.jobs.planning import Planner
from flux_k8s.jobs.turns import Full, NoRoom, StagingQueue
from flux_k8s.jobs.workflowinfo import Breakdowns, Goal, WorkflowInfo
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.objects.workflowstate import State
from flux_k8s.ports import Json
from flux_k8s.reasons import Reason
from flux_k8s.rules.directivebreakdown.allocation import Allocation
from flux_k8s.rules.directivebreakdown.breakdown import Breakdown
from flux_k8s.rules.directivebreakdown.compute import labelled_hosts
from flux_k8s.rules.directivebreakdown.resources import (
    apply_breakdowns,
    below_chassis,
    gib_per_node,
    requested_chassis,
    requested_nodes,
    requested_per_node,
)
from flux_k8s.rules.stagechoice import NodeTimes, StageChoice, choose_nodes

KEEP_TIMEOUT = 5.0
"""Seconds that the scheduler has for its answer that it keeps storage from others."""

NOT_SERVING = "the Rabbits, or nodes, that it needs do not serve"

Fit = Callable[..., Optional[StageChoice]]
"""Chooses Rabbits for a certain job: :func:`choose_nodes` with the nodes below each
Rabbit, and the bytes that are left there."""


class Staging:
    """Makes storage ahead.

    Attributes:
        queue: the jobs that wait for their turn.
    """

    def __init__(
        self,
        context: Context,
        machine: RabbitManager,
        planner: Planner,
        jobs: JobTable,
    ) -> None:
        self._flux = context.flux
        self._settings = context.settings
        self._machine = machine
        self._planner = planner
        self._jobs = jobs
        self.queue = StagingQueue(context.flux, jobs.ask)

    async def stage(self, info: WorkflowInfo) -> tuple[Placement, str]:
        """Write the job's Servers. Return its placement, and the nodes that it may get
        (RFC 29; "" for all).

        Raises:
            StorageUnavailable: there is no room.
            DWSError, KubeError, RpcError: as :class:`Planner`.
        """
        planner = self._planner
        await self._machine.node_use.update()
        breakdowns = await planner.read_breakdowns(info)
        # Nothing else is chosen before this is counted.
        allocation, allowed = self._choose(info, breakdowns)
        placement = planner.choose_ahead(info, breakdowns, allocation)
        try:
            await self._keep(info)
        except Exception:  # not GeneratorExit: a run that was left may go much later
            planner.withdraw(placement)
            raise
        await planner.write_ahead(placement)
        return placement, hostlist.encode(allowed)

    # Where there is room

    def _choose(
        self, info: WorkflowInfo, breakdowns: Breakdowns
    ) -> tuple[Allocation, Sequence[str]]:
        """Choose Rabbits, as if the job had nodes below them. Return them, and the
        nodes that the job may get; none for all nodes."""
        assert info.request is not None
        room = self._planner.left(breakdowns)
        nodes = requested_nodes(info.request.resources)
        check_maximums(breakdowns, nodes, self._settings.config)
        share = gib_per_node(breakdowns, nodes) * GIB
        fit = self._fit(info, nodes, share)
        below = self._below(info, breakdowns, nodes, share, fit)
        held, size, config = self._held(info), nodes * share, self._settings.config
        if held[info.userid] + size > self._most(config.stage_user_limit):
            text = "rabbit.stage_user_limit is reached"
            raise Full(text, Reason.LIMIT_REACHED)
        mapping = self._settings.mapping
        free = {name: self._machine.room(name, info.jobid) for name in room}
        if all(size is None for size in free.values()):
            text = "the scheduler has not said yet what is free"
            raise NoRoom(text, Reason.NOT_READY)
        room = {name: min(size, free[name] or 0) for name, size in room.items()}
        kept = self.queue.kept_before(info)
        below = {rabbit: below[rabbit] for rabbit in below if rabbit not in kept}
        near = any(map(_needs_nodes_near, breakdowns))
        choice = fit(below, room, times=self._node_times() if near else None)
        if choice is None:
            alone = self._machine.ledger.left((), lasting=True)
            later = fit(below, alone, own=room)
            hosts = () if later is None else later.hosts
            text = "others' storage: no Rabbits have room"
            raise Full(text, Reason.NO_ROOM, _rabbits(mapping, hosts))
        # The jobs behind it wait for that as well, so nothing else may be in its way.
        if sum(held.values()) + size > self._most(config.stage_limit):
            raise NoRoom("rabbit.stage_limit is reached", Reason.LIMIT_REACHED)
        allocation = Allocation(
            hosts=choice.hosts,
            nodes_per_rabbit=dict(_rabbits(mapping, choice.hosts)),
            room=room,
        )
        return allocation, choice.allowed if near else ()

    def _fit(self, info: WorkflowInfo, nodes: int, share: int) -> Fit:
        assert info.request is not None
        return partial(
            choose_nodes,
            nodes,
            share,
            own=self._machine.ledger.bytes_of(info.jobid),
            chassis=requested_chassis(info.request.resources) or 0,
            spread=self._machine.fluxion.has_chassis,
        )

    def _below(
        self,
        info: WorkflowInfo,
        breakdowns: Breakdowns,
        nodes: int,
        share: int,
        fit: Fit,
    ) -> Mapping[str, Sequence[str]]:
        """The nodes that the job may get now, by Rabbit.

        Raises:
            DWSError: it fits on no Rabbits, or exceeds a limit by itself.
            StorageUnavailable: it has to wait, whatever room there is.
        """
        sizes = self._machine.ledger.sizes
        try:
            possible = self._possible(info, breakdowns, nodes)
            if fit(possible, sizes) is None:
                raise no_rabbits(nodes, share)
            machine = sum(sizes.values())
            check_stage_limits(share * nodes, machine, self._settings.config)
        except (AllocationError, DirectiveError):
            self._machine.check_agreement()
            raise
        below = self._serving(possible)
        if fit(below, sizes) is None:
            raise StorageUnavailable(NOT_SERVING, Reason.RABBIT_BROKEN)
        return below

    def _node_times(self) -> NodeTimes:
        """Which nodes jobs have, and wait for where their data is."""
        awaited: Counter[str] = Counter()
        for info in self._jobs.infos():
            if info.stages_ahead and info.view is not None and info.view.staged_for:
                awaited += self._machine.ledger.allocations_of(info.jobid)
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
        why_not = self._machine.node_why_not
        return {
            rabbit: [name for name in names if not why_not(name)]
            for rabbit, names in below.items()
            if self._machine.serving(rabbit)
        }

    def _allowed(self, info: WorkflowInfo) -> frozenset[str]:
        """The nodes that the job's own constraints allow, and that have the cores and
        GPUs that it needs. If none has, by R, that is for the scheduler to say.

        Raises:
            StorageUnavailable: the nodes are not known yet.
            BadObject: the constraints are not as RFC 31 says.
        """
        states = self._machine.nodes.states
        if states is None or not self._machine.ledger.listed:
            text = "the nodes, or the storage in use, are not known yet"
            raise NoRoom(text, Reason.NOT_READY)
        assert info.request is not None
        wanted = constraints.parse_of_job(info.request.constraints)
        hosts = states.matching(wanted)
        needed = requested_per_node(info.request.resources)
        return hosts - states.lacking(needed) or hosts

    def _most(self, per_cent: float) -> float:
        """The bytes that jobs without nodes may have."""
        return sum(self._machine.ledger.sizes.values()) * per_cent / 100

    def _held(self, info: WorkflowInfo) -> Counter[Optional[int]]:
        """The bytes that other jobs without nodes have, by user."""
        held: Counter[Optional[int]] = Counter()
        for other in self._jobs.infos():
            if _holds_ahead(other) and other is not info:
                held[other.userid] += sum(
                    self._machine.ledger.bytes_of(other.jobid).values()
                )
        return held

    async def _keep(self, info: WorkflowInfo) -> None:
        """Wait until the scheduler keeps the chosen storage from others.

        Raises:
            StorageUnavailable: other jobs have got it meanwhile, a Rabbit does not
                serve, or there was no answer in time.
        """
        if not await Call(partial(self._when_kept, info.jobid)):
            text = "the scheduler does not answer about its storage"
            raise StorageUnavailable(text, Reason.FLUXION_ERROR)
        try:
            given_out = await self._machine.ssds.are_given_out(info.jobid)
        except BadObject as error:  # in the answer of the scheduler
            raise StorageUnavailable(str(error), Reason.FLUXION_ERROR) from None
        rabbits = self._machine.ledger.rabbits_of(info.jobid)
        if not all(map(self._machine.serving, rabbits)):
            raise StorageUnavailable(NOT_SERVING, Reason.RABBIT_BROKEN)
        if given_out:
            text = "others' storage: the scheduler has given it out"
            raise Full(text, Reason.NO_ROOM, rabbits)

    def _when_kept(self, jobid: int, answer: Answer) -> None:
        self._machine.when_withheld(jobid, partial(answer, True))
        self._flux.call_later(KEEP_TIMEOUT, partial(answer, False))

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
                    " submit it again",
                    Reason.OTHER_NODES,
                )
            rabbits = set(self._settings.mapping.rabbits_of(names).values())
            evenly = len(rabbits) > 1 and len(names) > nodes
            if evenly and requested_chassis(resources) == 0:
                resources = below_chassis(resources, len(rabbits))
        exclude = constraints.conjunction(self._machine.constraint(), where)
        return Proposal(resources, exclude)

    def lost(self, info: WorkflowInfo) -> str:
        """The Rabbits that broke with the data of a job without nodes, and their
        states, or ""."""
        view = info.view
        if not info.is_staged or view is None or (view.desired or 0) > State.DataIn:
            return ""
        machine = self._machine
        rabbits = machine.ledger.rabbits_of(info.jobid)
        return ", ".join(
            f"Rabbit {name} is {machine.rabbits.state(name).reported}"
            for name in sorted(rabbits, key=hostlist.natural_key)
            if not machine.keeps_data(name)
        )


def _holds_ahead(info: WorkflowInfo) -> bool:
    """Whether the job may have storage that was made ahead, and has no nodes for it.
    One that is over has it until it is gone."""
    never_had = info.allocation is None and not info.may_have_run
    over = info.goal is Goal.RELEASED and info.is_staged and never_had
    return info.stages_ahead or over


def _needs_nodes_near(breakdown: Breakdown) -> bool:
    """Whether the job's nodes must be below the Rabbits of this storage."""
    indexes = range(len(breakdown.allocation_sets))
    return any(map(breakdown.needs_own_rabbit, indexes))


def _rabbits(mapping: RabbitMapping, hosts: Sequence[str]) -> Counter[str]:
    """How many of the nodes each Rabbit has. All of them are below one."""
    return Counter(map(str, mapping.rabbits_of(hosts).values()))
