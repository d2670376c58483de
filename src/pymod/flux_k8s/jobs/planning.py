# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Plans the storage of jobs, and writes it to Servers and Computes.

This module sends the requests to Kubernetes. The rules by which DirectiveBreakdowns
become resources and Servers are in :mod:`flux_k8s.rules.directivebreakdown`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Mapping, Optional, Sequence, Union

from flux_k8s.config.context import Context
from flux_k8s.config.table import Daemon
from flux_k8s.control.coroutines import Call, gather, pause
from flux_k8s.control.kubecalls import KubeCalls
from flux_k8s.errors import (
    AllocationError,
    DWSError,
    NotReady,
    StorageDenied,
    StorageUnavailable,
)
from flux_k8s.formats.directives import GIB
from flux_k8s.jobs.placement import (
    Placement,
    Proposal,
    choose,
    daemons_of,
    propose,
)
from flux_k8s.jobs.workflowinfo import Breakdowns, WorkflowInfo
from flux_k8s.json_reader import read_string
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.objects.servers import Servers
from flux_k8s.objects.workflowstate import State
from flux_k8s.ports import (
    COMPUTES,
    DIRECTIVEBREAKDOWN,
    SERVERS,
    Json,
)
from flux_k8s.reasons import Reason
from flux_k8s.rules import nodefailure
from flux_k8s.rules.directivebreakdown.allocation import (
    Allocation,
    OtherMapping,
    job_allocation,
)
from flux_k8s.rules.directivebreakdown.breakdown import Reference, parse
from flux_k8s.rules.directivebreakdown.compute import (
    check_storage_of_nodes,
    existing_servers,
    near_hosts,
)
from flux_k8s.rules.nodefailure import Survey

LARGE = 1000
"""A job with more nodes is placed in several turns of the reactor."""


class Planner:
    """Plans a job's storage, and places it.

    Its coroutines raise KubeError when a request to Kubernetes fails,
    StorageUnavailable when storage is in use or broken, and NotReady when DWS is not
    ready. In these cases the caller tries again. Any other DWSError is lasting.
    """

    def __init__(
        self,
        context: Context,
        machine: RabbitManager,
    ) -> None:
        self._calls = context.kube
        self._settings = context.settings
        self._machine = machine
        self._rabbits = machine.rabbits
        self._ledger = machine.ledger
        self._clock = context.clock

    async def read_breakdowns(self, info: WorkflowInfo) -> Breakdowns:
        """The job's DirectiveBreakdowns. They do not change once they are ready.

        The Workflow names them from the end of Proposal on. The view may be of before
        that: a watch may go back, or show its end, while a step waits for an answer.
        """
        if info.breakdowns:
            return info.breakdowns
        view = info.view
        if view is None or not view.proposed:
            status = None if view is None else view.status
            name = f"Workflow {info.name}"
            raise NotReady(name, "status.status", status, "Completed")
        found = await gather(
            self._calls.get(DIRECTIVEBREAKDOWN, namespace, name)
            for namespace, name in view.breakdowns
        )
        info.breakdowns = tuple(map(parse, found))
        return info.breakdowns

    def forget(self, info: WorkflowInfo) -> None:
        """Drop all that is known of a job's storage."""
        for breakdown in info.breakdowns:
            if breakdown.servers is not None:
                self._ledger.withdraw(breakdown.servers)
        info.breakdowns = ()
        self._ledger.forget(info.jobid)

    def check_patience(
        self, info: WorkflowInfo, error: Union[AllocationError, StorageUnavailable]
    ) -> None:
        """Have a job with nodes wait no more that has waited too long because of
        ``error``. A prolog script that gives up takes its node out of service, so the
        job stops waiting when half of ``prolog_timeout`` is over, which counts from the
        begin of its prolog, as that of the script does.

        Raises:
            StorageDenied: it has waited too long.
        """
        waited = self._has_waited(info)
        if waited is not None:
            note = f"the job has waited for {waited:g}s, half of prolog_timeout"
            text = f"{error}; {note}; please submit it again"
            raise StorageDenied(text, Reason.PROLOG_TIMEOUT) from None

    def _has_waited(self, info: WorkflowInfo) -> Optional[float]:
        """Half of ``prolog_timeout`` in seconds, if the job's prolog takes longer."""
        limit, since = self._settings.config.prolog_timeout, info.prolog_since
        if limit is None or since is None or self._clock.now() - since <= limit / 2:
            return None
        return limit / 2

    def _await_agreement(
        self, info: WorkflowInfo, error: DWSError
    ) -> StorageUnavailable:
        """What to raise for a job with nodes for which R, its storage, the rabbit
        mapping and Kubernetes do not agree by ``error``: it waits, since a module with
        another mapping may come, or a list that lacks no Rabbit."""
        wait = StorageUnavailable(str(error), error.reason)
        self.check_patience(info, wait)
        return wait

    async def plan(self, info: WorkflowInfo) -> Proposal:
        """Rewrite the job's resources, and find the nodes that the job must avoid."""
        breakdowns = await self.read_breakdowns(info)
        servers = await _read_made(self._calls, existing_servers(breakdowns))
        assert info.request is not None
        resources, machine = info.request.resources, self._machine
        try:
            return propose(resources, breakdowns, servers, machine, self._settings)
        except AllocationError:
            machine.check_agreement()
            raise

    async def place(self, info: WorkflowInfo) -> Placement:
        """Write the job's Servers and Computes."""
        assert info.allocation is not None
        R, mapping = info.allocation, self._settings.mapping
        name = f"R of job {info.f58}"
        try:
            allocation = job_allocation(R, mapping, name=name)
        except OtherMapping as error:
            raise self._await_agreement(info, error) from None
        self._note_share(info.jobid, allocation.gib_per_rabbit)
        if not allocation.hosts:
            raise AllocationError(
                "all nodes of the job are Rabbits, which do not mount storage"
            )
        breakdowns = await self.read_breakdowns(info)
        existing = await _read_made(self._calls, existing_servers(breakdowns))
        await self._next_turn(allocation.hosts)
        place = partial(self._choose, info, breakdowns, existing, allocation)
        placement, before = place(), self._ledger.changes
        await self._next_turn(placement.hosts)
        if self._ledger.changes != before:
            placement = place()
        self._assume(placement)
        self._ledger.note_placed(info.jobid)
        # Other jobs choose beside what is counted now.
        await self._next_turn(placement.hosts)
        # A request that fails may be carried out yet, so its storage stays counted.
        computes = self._patch_computes(info, placement.hosts)
        await gather([*self._patch_servers(placement), computes])
        return placement

    def choose_ahead(
        self, info: WorkflowInfo, breakdowns: Breakdowns, allocation: Allocation
    ) -> Placement:
        """Choose the storage of a job that has no nodes yet, and count it as its own.

        Args:
            allocation: as if the job had nodes, with the room that there is.
        """
        try:
            usable = self._on_serving(breakdowns, allocation)
            placement = choose(info, breakdowns, {}, usable, self._settings)
        except AllocationError as error:
            alone = self._usable(info, breakdowns, allocation, lasting=True)
            choose(info, breakdowns, {}, alone, self._settings)
            raise _await_others(error) from None
        self._assume(placement)
        return placement

    def withdraw(self, placement: Placement) -> None:
        """Storage that was chosen is not made: it does not count any more."""
        for reference in placement.servers:
            self._ledger.withdraw(reference)

    async def write_ahead(self, placement: Placement) -> None:
        """Write the Servers of a job that has no nodes yet."""
        # A module that died may have chosen other Rabbits. Its request may come when
        # the storage of this placement is made.
        written = await _read_servers(self._calls, tuple(placement.bodies))
        versions = {
            reference: read_string(found["metadata"], "resourceVersion")
            for reference, found in written.items()
        }
        await gather(self._patch_servers(placement, versions))  # as in place()

    async def add_nodes(self, info: WorkflowInfo) -> None:
        """Write the Computes of a job whose storage was made ahead."""
        breakdowns = await self.read_breakdowns(info)
        making = [b for b in breakdowns if b.servers is not None]
        own = [b.servers for b in making if b.servers]
        servers = await _read_made(self._calls, own)
        assert info.allocation is not None
        hosts = tuple(dict.fromkeys(info.allocation.hosts))
        mapping = self._settings.mapping
        try:
            check_storage_of_nodes(making, servers, mapping.rabbits_of(hosts), mapping)
        except AllocationError as error:
            raise self._await_agreement(info, error) from None
        await self._patch_computes(info, hosts)

    async def _next_turn(self, hosts: Sequence[str]) -> None:
        """Let the reactor go on before more is done for a job of so many nodes."""
        if len(hosts) > LARGE:
            await pause(self._clock, 0.0)

    def _note_share(self, jobid: int, ssd: Mapping[str, Optional[int]]) -> None:
        """Count the job's share, so that no other job takes more than its own share
        there."""
        known = {r: count * GIB for r, count in ssd.items() if count is not None}
        if len(known) == len(ssd):
            self._ledger.note_share(jobid, known)

    def _choose(
        self,
        info: WorkflowInfo,
        breakdowns: Breakdowns,
        existing: Mapping[Reference, Json],
        allocation: Allocation,
    ) -> Placement:
        """Choose the job's storage.

        Raises:
            StorageUnavailable: it will fit when others give theirs back, when a broken
                Rabbit serves again, or when one is there that a list may have lacked.
            DWSError: it will not.
        """
        place = partial(self._place_on, info, breakdowns, existing)
        try:
            if near_hosts(breakdowns, existing, self._settings.mapping) is not None:
                # It uses existing storage on the Rabbits of its nodes.
                below = self._settings.mapping.rabbits_of(allocation.hosts)
                self._machine.check_serving(below.values())
            return place(self._usable(info, breakdowns, allocation))
        except (AllocationError, StorageUnavailable) as error:
            self.check_patience(info, error)
            if isinstance(error, StorageUnavailable):
                raise
            if not self._rabbits.absent.isdisjoint(allocation.rabbits):
                raise StorageUnavailable(str(error), error.reason) from None
            place(self._usable(info, breakdowns, allocation, lasting=True))
            raise _await_others(error) from None

    def _usable(
        self,
        info: WorkflowInfo,
        breakdowns: Breakdowns,
        allocation: Allocation,
        lasting: bool = False,
    ) -> Allocation:
        """What a job may use now, or (``lasting``) when others have given theirs back:
        a share may be given to it while another job still holds it."""
        own, ledger = _own(breakdowns), self._ledger
        whole = lasting and self._settings.scheduler
        return replace(
            self._on_serving(breakdowns, allocation, lasting),
            room=ledger.sizes if whole else ledger.left(own, lasting),
            other_shares={} if lasting else ledger.unplaced_beside(info.jobid),
        )

    def _on_serving(
        self, breakdowns: Breakdowns, allocation: Allocation, lasting: bool = False
    ) -> Allocation:
        """The allocation on Rabbits that serve, beside the storage of others. A job
        without colocation keys need not know those of others."""
        rabbits, colocated = self._rabbits, dict[str, frozenset[str]]()
        if any(s.colocation for b in breakdowns for s in b.allocation_sets):
            colocated = self._ledger.colocated(_own(breakdowns), lasting)
        return replace(
            allocation,
            storages=rabbits.labels,
            broken_rabbits=rabbits.broken,
            colocated=colocated,
        )

    def _place_on(
        self,
        info: WorkflowInfo,
        breakdowns: Breakdowns,
        existing: Mapping[Reference, Json],
        allocation: Allocation,
    ) -> Placement:
        """Choose the job's storage on an allocation. A job that tolerates failed nodes
        does without those whose Rabbits are broken, but for Rabbits that a list may
        have lacked, as long as the job may wait."""
        place = partial(choose, info, breakdowns, existing, settings=self._settings)
        try:
            return place(allocation)
        except AllocationError:
            awaited = () if self._has_waited(info) else self._rabbits.absent
            broken, mapping = allocation.broken_rabbits, self._settings.mapping
            places = {h: mapping.rabbit_of(h) for h in allocation.hosts}
            lost = tuple(
                h for h, r in places.items() if r in broken and r not in awaited
            )
            if not lost or info.failure_tolerance == 0:
                raise
        named = dict.fromkeys(str(places[host]) for host in lost)
        problem = ", ".join(f"Rabbit {rabbit} is {broken[rabbit]}" for rabbit in named)
        hosts, tolerance = allocation.hosts, info.failure_tolerance
        survey = Survey(State.Setup, self._clock.now(), hosts, lost, served=True)
        goes_on, note = nodefailure.verdict(hosts, survey, tolerance, problem)
        if not goes_on:
            raise AllocationError(note, Reason.NODES_FAILED)
        placement = place(allocation.without(lost, named))
        return replace(placement, excluded=(survey, note))

    def left(self, breakdowns: Breakdowns) -> Mapping[str, int]:
        """The bytes that are left on each Rabbit, if the job's own storage is not
        counted."""
        return self._ledger.left(_own(breakdowns))

    def _assume(self, placement: Placement) -> None:
        """Count the storage of a job as its own."""
        for reference, servers in placement.servers.items():
            self._ledger.assume(reference, servers)

    async def daemons(self, info: WorkflowInfo) -> tuple[Daemon, ...]:
        """The daemons that the job requires, in the order of its directives."""
        # A reload of the configuration may have removed a daemon since Proposal.
        may_require = info.view is not None and info.view.runs_containers
        if may_require or self._settings.config.daemons:
            return daemons_of(await self.read_breakdowns(info), self._settings)
        return ()

    def _patch_servers(
        self, placement: Placement, versions: Optional[Mapping[Reference, str]] = None
    ) -> list[Call[Json]]:
        """The requests that write a job's Servers.

        Args:
            versions: the resource versions without which they are refused.
        """

        def patch(servers: Reference, body: Json) -> Call[Json]:
            namespace, name = servers.namespace, servers.name
            if versions is not None:
                metadata = {**body.get("metadata", {})}
                metadata["resourceVersion"] = versions[servers]
                body = {**body, "metadata": metadata}
            return self._calls.patch(SERVERS, namespace, name, body)

        return [patch(*each) for each in placement.bodies.items()]

    def computes_of(self, info: WorkflowInfo) -> Reference:
        """The job's Computes."""
        if info.view is not None and info.view.computes is not None:
            return Reference(*info.view.computes)
        return Reference(self._settings.namespace, info.name)

    def _patch_computes(self, info: WorkflowInfo, hosts: Sequence[str]) -> Call[Json]:
        computes = self.computes_of(info)
        namespace, name = computes.namespace, computes.name
        body: Json = {"data": [{"name": host} for host in hosts]}
        return self._calls.patch(COMPUTES, namespace, name, body)


def _await_others(error: AllocationError) -> StorageUnavailable:
    """The job waits for storage that others have."""
    return StorageUnavailable(f"others' storage: {error}", error.reason)


def _own(breakdowns: Breakdowns) -> frozenset[Reference]:
    """The Servers of a job."""
    return frozenset(b.servers for b in breakdowns if b.servers is not None)


async def _read_made(
    calls: KubeCalls, references: Sequence[Reference]
) -> dict[Reference, Json]:
    """The Servers of storage that exists.

    Raises:
        KubeError: a request failed.
        NotReady: some are not ready: the storage may be made just now.
    """
    servers = await _read_servers(calls, references)
    for found in map(Servers.read, servers.values()):
        if not found.ready:
            raise NotReady(found.name, "status.ready", False, "true")
    return servers


async def _read_servers(
    calls: KubeCalls, references: Sequence[Reference]
) -> dict[Reference, Json]:
    found = await gather(
        calls.get(SERVERS, each.namespace, each.name) for each in references
    )
    return dict(zip(references, found))
