# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""From DirectiveBreakdowns to what the scheduler and DWS have to know.

The rules are in :mod:`flux_k8s.directivebreakdown`; here are the requests to
Kubernetes around them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

from flux_k8s import hostlist, nodefailure
from flux_k8s.config import Daemon
from flux_k8s.constraints import conjunction
from flux_k8s.directivebreakdown import (
    Allocation,
    Breakdown,
    Reference,
    apply_breakdowns,
    build_servers,
    check_locations,
    colocation_annotations,
    existing_servers,
    job_allocation,
    location_constraint,
    occupied_rabbits,
    requested_nodes,
    required_daemons,
    with_network_access,
)
from flux_k8s.directivebreakdown import parse as parse_breakdown
from flux_k8s.directivebreakdown.breakdown import JOB, check_ready
from flux_k8s.errors import AllocationError, DWSError, Occupied
from flux_k8s.fields import Reader
from flux_k8s.gather import gather
from flux_k8s.holding import WORKFLOW_LABEL, workflow_of
from flux_k8s.jobid import f58
from flux_k8s.nodefailure import Survey
from flux_k8s.ports import (
    COMPUTES,
    DIRECTIVEBREAKDOWN,
    PERSISTENTSTORAGE,
    SERVERS,
    Json,
    Kube,
    KubeDone,
    KubeError,
)
from flux_k8s.settings import Settings
from flux_k8s.storage import RabbitManager
from flux_k8s.workflowinfo import WorkflowInfo
from flux_k8s.workflowview import State

NETWORKED = ("lustre",)
"""The types of persistent storage that every node reaches over the network."""


@dataclass(frozen=True)
class Proposal:
    """What ``resource-update`` tells the plugin."""

    resources: list[Any]
    exclude: Json


@dataclass(frozen=True)
class Placed:
    """Servers and Computes were written.

    Attributes:
        rabbits: the Rabbits with storage of the job (RFC 29).
        units: the systemd units that the job needs on its nodes.
        unmet: wishes about the location of nodes that could not be fulfilled.
        left_out: the nodes that the job is to do without, and why; None when it has
            storage on all.
    """

    rabbits: str
    units: tuple[str, ...]
    unmet: tuple[str, ...]
    left_out: Optional[tuple[Survey, str]] = None


@dataclass(frozen=True)
class _Choice:
    """Where a job's storage goes.

    Attributes:
        servers: the job's own, as they will be.
        calls: the patches that make them so.
        placed: what the patches achieve.
    """

    servers: Mapping[Reference, Json]
    calls: Sequence[Callable[[KubeDone], None]]
    placed: Placed


Failure = Union[KubeError, Occupied, DWSError]
"""Kubernetes is in the way, or other jobs are, or DWS is not ready (NotReady; try
again), or the request itself is (give up)."""

Breakdowns = tuple[Breakdown, ...]


class Planner:
    """Plans a job's storage, and places it.

    Args:
        constraint: tells the constraint that every job with Rabbit storage gets.
        now: tells the time (UNIX, seconds).
    """

    def __init__(
        self,
        kube: Kube,
        settings: Settings,
        rabbits: RabbitManager,
        constraint: Callable[[], Json],
        now: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._rabbits = rabbits
        self._constraint = constraint
        self._now = now
        self._breakdowns: dict[int, Breakdowns] = {}
        self._waiting: dict[int, float] = {}
        self._turns: deque[Callable[[], None]] = deque()

    def forget(self, jobid: int) -> None:
        """Drop what is kept for a job."""
        for breakdown in self._breakdowns.pop(jobid, ()):
            if breakdown.servers is not None:
                self._rabbits.withdraw(breakdown.servers)
        self._waiting.pop(jobid, None)

    def plan(
        self, info: WorkflowInfo, done: Callable[[Union[Proposal, Failure]], None]
    ) -> None:
        """Rewrite the job's resources, and find the nodes that it must avoid."""

        def with_breakdowns(breakdowns: Union[Breakdowns, Failure]) -> None:
            if isinstance(breakdowns, Exception):
                done(breakdowns)
            else:
                needed = existing_servers(breakdowns)
                self._get_servers(needed, partial(with_servers, breakdowns))

        def with_servers(
            breakdowns: Breakdowns, servers: Union[Mapping[Reference, Json], Failure]
        ) -> None:
            if isinstance(servers, Exception):
                done(servers)
                return
            try:
                done(self._propose(info, breakdowns, servers))
            except DWSError as error:
                done(error)

        self.read_breakdowns(info, with_breakdowns)

    def _propose(
        self,
        info: WorkflowInfo,
        breakdowns: Breakdowns,
        servers: Mapping[Reference, Json],
    ) -> Proposal:
        assert info.request is not None
        mapping = self._settings.mapping
        required_daemons(breakdowns, self._settings.config.daemons)
        resources = info.request.resources
        if self._settings.scheduler:
            resources = apply_breakdowns(breakdowns, resources)
        nodes = requested_nodes(resources) if servers else 0
        near = location_constraint(breakdowns, servers, mapping, nodes)
        exclude = conjunction(self._constraint(), near)
        return Proposal(list(resources), exclude)

    def place(
        self, info: WorkflowInfo, done: Callable[[Union[Placed, Failure]], None]
    ) -> None:
        """Write the job's Servers and Computes."""

        def with_breakdowns(breakdowns: Union[Breakdowns, Failure]) -> None:
            if isinstance(breakdowns, Exception):
                done(breakdowns)
                return
            needed = existing_servers(breakdowns)
            self._get_servers(needed, partial(with_servers, breakdowns))

        def with_servers(
            breakdowns: Breakdowns, existing: Union[Mapping[Reference, Json], Failure]
        ) -> None:
            if isinstance(existing, Exception):
                done(existing)
            elif any(s.colocation for b in breakdowns for s in b.allocation_sets):
                self._in_turn(partial(place_apart, breakdowns, existing))
            else:
                self._write(info, breakdowns, existing, [], done)

        def place_apart(
            breakdowns: Breakdowns, existing: Mapping[Reference, Json]
        ) -> None:
            self._get_others(breakdowns, partial(with_others, breakdowns, existing))

        def with_others(
            breakdowns: Breakdowns,
            existing: Mapping[Reference, Json],
            others: Union[list[Json], KubeError],
        ) -> None:
            if isinstance(others, KubeError):
                finish(others)
            else:
                self._write(info, breakdowns, existing, others, finish)

        def finish(result: Union[Placed, Failure]) -> None:
            self._next_turn()
            done(result)

        self.read_breakdowns(info, with_breakdowns)

    def _in_turn(self, start: Callable[[], None]) -> None:
        """Two jobs that look for a Rabbit without a certain colocation key at
        the same time would both choose the same: they do it in turn."""
        self._turns.append(start)
        if len(self._turns) == 1:
            start()

    def _next_turn(self) -> None:
        self._turns.popleft()
        if self._turns:
            self._turns[0]()

    def _write(
        self,
        info: WorkflowInfo,
        breakdowns: Breakdowns,
        existing: Mapping[Reference, Json],
        others: Sequence[Json],
        done: Callable[[Union[Placed, Failure]], None],
    ) -> None:
        own = frozenset(b.servers for b in breakdowns if b.servers is not None)
        choose = partial(self._choose, info, breakdowns, existing)

        def without_jobs() -> None:
            lasting = [s for s in others if workflow_of(s) is None]
            choose(lasting, self._rabbits.room(own, lasting=True))

        try:
            choice = choose(others, self._rabbits.room(own))
        except DWSError as error:
            done(self._reason_to_wait(info, error, without_jobs) or error)
            return
        self._waiting.pop(info.jobid, None)
        for reference, servers in choice.servers.items():
            self._rabbits.promise(reference, servers)

        def written(results: Union[list[Json], KubeError]) -> None:
            if isinstance(results, KubeError):
                for reference in choice.servers:
                    self._rabbits.withdraw(reference)
                done(results)
            else:
                done(choice.placed)

        gather(choice.calls, written)

    def _reason_to_wait(
        self, info: WorkflowInfo, error: DWSError, without_jobs: Callable[[], None]
    ) -> Optional[Occupied]:
        """Why to try again, when it is only other jobs' storage that leaves no
        room for this one, or for its colocation keys.

        A prolog script that gives up takes its node out of service, so we give
        up long before it does.

        Args:
            without_jobs: the choice without storage that goes with other jobs.
        """
        if not isinstance(error, AllocationError):
            return None
        since = self._waiting.setdefault(info.jobid, self._now())
        if self._now() - since > self._settings.config.prolog_timeout / 2:
            return None
        try:
            without_jobs()
        except DWSError:
            return None
        return Occupied(str(error))

    def _choose(
        self,
        info: WorkflowInfo,
        breakdowns: Breakdowns,
        existing: Mapping[Reference, Json],
        others: Iterable[Json],
        room: Mapping[str, int],
    ) -> _Choice:
        """Where the job's storage goes."""
        assert info.allocation is not None
        allocation = job_allocation(
            info.allocation,
            self._settings.mapping,
            self._rabbits.labels,
            occupied_rabbits(others),
            room,
            name=f"R of job {f58(info.jobid)}",
        )
        allocation = replace(allocation, unfit=self._down())
        try:
            return self._choose_on(info, breakdowns, existing, allocation)
        except AllocationError as error:
            left_out = self._left_out(info, allocation, error)
        survey, _ = left_out
        places = map(self._settings.mapping.rabbit_of, survey.lost)
        rest = allocation.without(survey.lost, {r for r in places if r is not None})
        choice = self._choose_on(info, breakdowns, existing, rest)
        return replace(choice, placed=replace(choice.placed, left_out=left_out))

    def _down(self) -> dict[str, str]:
        """The Rabbits that are known to be down, with their status."""
        return {
            n: state.status for n, state in self._rabbits.unwell if not state.serving
        }

    def _left_out(
        self, info: WorkflowInfo, allocation: Allocation, error: AllocationError
    ) -> tuple[Survey, str]:
        """The nodes that a job can do without, because their Rabbits are down, and
        what its owner is told.

        Raises:
            AllocationError: it cannot.
        """
        hosts, tolerance = allocation.hosts, info.failure_tolerance
        rabbits = {host: self._settings.mapping.rabbit_of(host) for host in hosts}
        lost = tuple(host for host in hosts if rabbits[host] in allocation.unfit)
        if not lost or tolerance == 0:
            raise error
        survey = Survey(State.Setup, self._now(), hosts, lost, served=True)
        down = dict.fromkeys(str(rabbits[host]) for host in lost)
        problem = ", ".join(f"Rabbit {r} is {allocation.unfit[r]}" for r in down)
        if not nodefailure.tolerated(hosts, survey, tolerance):
            note = nodefailure.refusal_note(hosts, survey, tolerance, problem)
            raise AllocationError(note)
        return survey, nodefailure.exclusion_note(hosts, survey, tolerance, problem)

    def _choose_on(
        self,
        info: WorkflowInfo,
        breakdowns: Breakdowns,
        existing: Mapping[Reference, Json],
        allocation: Allocation,
    ) -> _Choice:
        hosts = allocation.hosts
        with_storage = [b for b in breakdowns if b.servers is not None]
        specs = build_servers(with_storage, allocation) if with_storage else []
        servers = {
            breakdown.servers: _servers(info, breakdown, sets)
            for breakdown, sets in zip(with_storage, specs)
            if breakdown.servers is not None
        }
        unmet = check_locations(
            breakdowns, {**existing, **servers}, hosts, self._settings.mapping
        )
        calls: list[Callable[[KubeDone], None]] = [
            partial(self._patch_servers, breakdown, sets)
            for breakdown, sets in zip(with_storage, specs)
        ]
        calls.append(partial(self._patch_computes, info, hosts))
        daemons = self._daemons_of(breakdowns)
        units = dict.fromkeys(daemon.unit for daemon in daemons if daemon.unit)
        rabbits = {
            storage["name"]
            for sets in specs
            for allocation_set in sets
            for storage in allocation_set["storage"]
        }
        names = hostlist.encode(sorted(rabbits, key=hostlist.natural_key))
        return _Choice(servers, calls, Placed(names, tuple(units), unmet))

    def daemons(
        self,
        info: WorkflowInfo,
        done: Callable[[Union[tuple[Daemon, ...], Failure]], None],
    ) -> None:
        """The daemons that the job requires, in the order of its directives."""

        def with_breakdowns(breakdowns: Union[Breakdowns, Failure]) -> None:
            if isinstance(breakdowns, Exception):
                done(breakdowns)
                return
            try:
                done(self._daemons_of(breakdowns))
            except DWSError as error:
                done(error)

        # A reload of the configuration may have taken one away since Proposal.
        may_require = info.view is not None and info.view.runs_containers
        if may_require or self._settings.config.daemons:
            self.read_breakdowns(info, with_breakdowns)
        else:
            done(())

    def _daemons_of(self, breakdowns: Breakdowns) -> tuple[Daemon, ...]:
        known = self._settings.config.daemons
        return tuple(known[name] for name in required_daemons(breakdowns, known))

    # What Kubernetes has, and what it gets

    def read_breakdowns(
        self, info: WorkflowInfo, done: Callable[[Union[Breakdowns, Failure]], None]
    ) -> None:
        """A job's DirectiveBreakdowns. They do not change once they are ready."""
        known = self._breakdowns.get(info.jobid)
        if known is not None:
            done(known)
            return
        assert info.view is not None

        def read(results: Union[list[Json], KubeError]) -> None:
            if isinstance(results, KubeError):
                done(results)
                return
            try:
                breakdowns = tuple(parse_breakdown(result) for result in results)
            except DWSError as error:
                done(error)
                return
            self._correct_access(breakdowns, corrected)

        def corrected(breakdowns: Union[Breakdowns, Failure]) -> None:
            if not isinstance(breakdowns, Exception):
                self._breakdowns[info.jobid] = breakdowns
            done(breakdowns)

        def get(namespace: str, name: str, answer: KubeDone) -> None:
            self._kube.get(DIRECTIVEBREAKDOWN, namespace, name, answer, key=name)

        gather([partial(get, *reference) for reference in info.view.breakdowns], read)

    def _correct_access(
        self,
        breakdowns: Breakdowns,
        done: Callable[[Union[Breakdowns, Failure]], None],
    ) -> None:
        """NNF says of every ``persistentdw`` that its nodes need a PCIe
        connection, since that directive has no type. For a file system that
        nodes reach over the network this is not so; the type that the storage
        was created with stands in its PersistentStorageInstance, which has the
        name of its Servers."""
        references = existing_servers(breakdowns)

        def get(reference: Reference, answer: KubeDone) -> None:
            def got(result: Union[Json, KubeError]) -> None:
                missing = isinstance(result, KubeError) and result.status == 404
                answer({} if missing else result)

            self._kube.get(
                PERSISTENTSTORAGE,
                reference.namespace,
                reference.name,
                got,
                key=f"servers/{reference.name}",
            )

        def with_storage(results: Union[list[Json], KubeError]) -> None:
            if isinstance(results, KubeError):
                done(results)
                return
            types = [(result.get("spec") or {}).get("fsType") for result in results]
            networked = {r for r, type in zip(references, types) if type in NETWORKED}
            done(with_network_access(breakdowns, networked))

        gather([partial(get, reference) for reference in references], with_storage)

    def _get_servers(
        self,
        references: Sequence[Reference],
        done: Callable[[Union[Mapping[Reference, Json], Failure]], None],
    ) -> None:
        """The Servers of storage that exists, which must be ready: it may be made
        just now."""

        def get(reference: Reference, answer: KubeDone) -> None:
            key = f"servers/{reference.name}"
            self._kube.get(
                SERVERS, reference.namespace, reference.name, answer, key=key
            )

        def got(results: Union[list[Json], KubeError]) -> None:
            if isinstance(results, KubeError):
                done(results)
                return
            servers = dict(zip(references, results))
            try:
                for reference in references:
                    check_ready(Reader(f"Servers {reference}", servers[reference]))
            except DWSError as error:
                done(error)
            else:
                done(servers)

        gather([partial(get, reference) for reference in references], got)

    def _get_others(
        self,
        breakdowns: Breakdowns,
        done: Callable[[Union[list[Json], KubeError]], None],
    ) -> None:
        """All Servers but the job's own."""
        own = {breakdown.servers for breakdown in breakdowns}

        def got(result: Union[Json, KubeError]) -> None:
            if isinstance(result, KubeError):
                done(result)
                return
            done([item for item in result.get("items", []) if _name(item) not in own])

        self._kube.list(SERVERS, None, got, key="servers")

    def _patch_servers(
        self, breakdown: Breakdown, sets: list[Json], done: KubeDone
    ) -> None:
        assert breakdown.servers is not None
        namespace, name = breakdown.servers.namespace, breakdown.servers.name
        body: Json = {"spec": {"allocationSets": sets}}
        annotations = colocation_annotations(breakdown)
        if annotations:
            body["metadata"] = {"annotations": annotations}
        self._kube.patch(SERVERS, namespace, name, body, done, key=f"servers/{name}")

    def _patch_computes(
        self, info: WorkflowInfo, hosts: Sequence[str], done: KubeDone
    ) -> None:
        namespace, name = self._settings.namespace, info.name
        if info.view is not None and info.view.computes is not None:
            namespace, name = info.view.computes
        body: Json = {"data": [{"name": host} for host in hosts]}
        self._kube.patch(COMPUTES, namespace, name, body, done, key=f"computes/{name}")


def _servers(info: WorkflowInfo, breakdown: Breakdown, sets: list[Json]) -> Json:
    """A Servers object as it will be, as far as it is read."""
    labels = {WORKFLOW_LABEL: info.name} if breakdown.lifetime == JOB else {}
    return {"metadata": {"labels": labels}, "spec": {"allocationSets": sets}}


def _name(item: Any) -> Optional[Reference]:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict):
        return None
    return Reference(str(metadata.get("namespace")), str(metadata.get("name")))
