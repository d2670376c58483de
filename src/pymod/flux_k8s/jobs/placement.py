# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Where a job's storage and its nodes go: :func:`propose` before it has nodes,
:func:`choose` when it has.

A job that uses existing storage (``persistentdw``) requests no ``ssd``. So ``ssd`` that
are out of service do not keep the job off a broken Rabbit. A property of the Rabbit's
nodes would, but Fluxion 0.54 denies a job for good when its constraint fits no node,
and a broken Rabbit will be repaired. Therefore such a job waits in DEPEND until enough
nodes below serving Rabbits can reach its storage, and gets a constraint to these nodes.
The same holds for a job whose storage needs labels that only some Rabbits carry. If one
of these Rabbits breaks before the job has nodes, the job may get nodes below it, and
waits in its prolog (:mod:`flux_k8s.jobs.planning`).

The rules of where storage may be are in :mod:`flux_k8s.rules.directivebreakdown`;
whether a job can do without nodes is in :mod:`flux_k8s.rules.nodefailure`. Nothing is
written here. Other jobs must not choose before the placement is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from flux_k8s.config.policy import check_maximums
from flux_k8s.config.settings import Settings
from flux_k8s.config.table import Daemon
from flux_k8s.errors import AllocationError, StorageUnavailable
from flux_k8s.formats.constraints import conjunction, only_hosts
from flux_k8s.jobs.workflowinfo import Breakdowns, WorkflowInfo
from flux_k8s.json_reader import is_integer
from flux_k8s.machine.manager import RabbitManager
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.objects.storageusage import WORKFLOW_LABEL, beyond_annotation
from flux_k8s.ports import Json
from flux_k8s.reasons import Reason
from flux_k8s.rules.directivebreakdown.allocation import (
    Allocation,
    beyond_shares,
    colocation_annotations,
)
from flux_k8s.rules.directivebreakdown.breakdown import JOB, Breakdown, Reference
from flux_k8s.rules.directivebreakdown.compute import (
    check_enough,
    check_locations,
    labelled_hosts,
    near_hosts,
    required_daemons,
    wished_hosts,
)
from flux_k8s.rules.directivebreakdown.resources import (
    apply_breakdowns,
    asks_for_rabbits,
    requested_chassis,
    requested_nodes,
    share_of_node,
)
from flux_k8s.rules.directivebreakdown.servers import build_servers
from flux_k8s.rules.nodefailure import Survey
from flux_k8s.rules.room import why_never

Hosts = Optional[frozenset[str]]
"""The nodes that a job may have; None for all nodes."""


@dataclass(frozen=True)
class Proposal:
    """A job's request to the scheduler, with its storage, as the plugin gets it in
    ``resource-update``.

    Attributes:
        where: the part of ``exclude`` that the job's storage calls for, or None.
    """

    resources: list[Any]
    exclude: Json
    where: Optional[Json] = None

    def fits(self, resources: Any, constraints: Any) -> bool:
        """Whether a job with these ``resources`` and ``constraints`` has what it needs
        by this proposal: it may have more ``ssd``, and fewer nodes to choose from."""
        return _covers(resources, self.resources) and (
            self.where is None or _includes(constraints, self.where)
        )


def propose(
    resources: Sequence[Any],
    breakdowns: Sequence[Breakdown],
    servers: Mapping[Reference, Json],
    machine: RabbitManager,
    settings: Settings,
) -> Proposal:
    """Add a job's storage to its request.

    Args:
        resources: ``resources`` of the jobspec.
        servers: those that
            :func:`~flux_k8s.rules.directivebreakdown.compute.existing_servers` names.

    Raises:
        DWSError: the job cannot have its storage.
        StorageUnavailable: the job cannot have its storage yet.
    """
    required_daemons(breakdowns, settings.config.daemons)
    if settings.scheduler:
        resources = apply_breakdowns(breakdowns, resources)
    nodes, mapping = requested_nodes(resources), settings.mapping
    check_maximums(breakdowns, nodes, settings.config)
    labelled = labelled_hosts(breakdowns, machine.rabbits.all_labels, mapping, nodes)
    near = near_hosts(breakdowns, servers, mapping, nodes)
    hosts = labelled if near is None else _both(near, labelled, nodes)
    _check_fits(breakdowns, resources, hosts, machine, settings)
    if hosts is not None:
        hosts = _serving(hosts, machine, mapping, nodes)
    wished = wished_hosts(breakdowns, servers, mapping)
    hosts = _wished(hosts, wished, machine, nodes)
    where = None if hosts is None else only_hosts(hosts)
    constraint = machine.constraint(asks_for_rabbits(resources))
    return Proposal(list(resources), conjunction(constraint, where), where)


def _covers(has: Any, needs: Any) -> bool:
    """Whether a request is another one, or the same with more ``ssd``."""
    if isinstance(has, dict) and isinstance(needs, dict):
        if has.get("type") == needs.get("type") == "ssd":
            had: Any = has.get("count")
            needed: Any = needs.get("count")
            more = is_integer(had) and is_integer(needed) and had >= needed
            return more and {**has, "count": 0} == {**needs, "count": 0}
        return has.keys() == needs.keys() and all(
            _covers(has[key], needs[key]) for key in needs
        )
    if isinstance(has, list) and isinstance(needs, list):
        return len(has) == len(needs) and all(map(_covers, has, needs))
    return bool(has == needs)


def _includes(constraint: Any, part: Json) -> bool:
    """Whether a constraint is a conjunction with another one."""
    if constraint == part:
        return True
    parts = constraint.get("and") if isinstance(constraint, dict) else None
    return isinstance(parts, list) and any(_includes(each, part) for each in parts)


def _check_fits(
    breakdowns: Sequence[Breakdown],
    resources: Sequence[Any],
    hosts: Hosts,
    machine: RabbitManager,
    settings: Settings,
) -> None:
    """Refuse a job that would not fit if no other job ran: a scheduler would deny it
    without a reason.

    Raises:
        AllocationError: has the reason.
        StorageUnavailable: the scheduler would deny any job.
    """
    nodes = requested_nodes(resources)
    share = share_of_node(breakdowns, nodes, settings.scheduler)
    chassis = requested_chassis(resources) or 0
    problem = share and why_never(nodes, share, machine.empty_rabbits(hosts), chassis)
    if not problem and nodes > machine.most_nodes:
        problem = f"the job asks for {nodes} nodes, and Flux has {machine.most_nodes}"
    if problem:
        raise AllocationError(problem)
    if share and machine.fluxion.why_none:
        raise StorageUnavailable(machine.fluxion.why_none, Reason.MAPPING_DISAGREES)


def _both(near: frozenset[str], labelled: Hosts, nodes: int) -> frozenset[str]:
    """The nodes that can reach persistent storage and have Rabbits with the labels
    that the job's own storage needs."""
    if labelled is None:
        return near
    hosts = near & labelled
    if not hosts:
        raise AllocationError(
            "no compute node can reach the persistent storage of the job and is below"
            " a Rabbit with the labels that its own storage needs"
        )
    text = "can reach its persistent storage, and are below Rabbits with the labels"
    check_enough(hosts, nodes, f"{text} that its own storage needs")
    return hosts


def _wished(hosts: Hosts, wished: Hosts, machine: RabbitManager, nodes: int) -> Hosts:
    """The nodes of ``hosts`` that are ``wished`` and whose Rabbits serve. All of
    ``hosts`` if these are fewer than ``nodes``, or if none is wished."""
    if not wished:
        return hosts
    best = machine.below_serving(wished)
    best = best if hosts is None else best & hosts
    return best if best and len(best) >= nodes else hosts


def _serving(
    hosts: frozenset[str], machine: RabbitManager, mapping: RabbitMapping, nodes: int
) -> frozenset[str]:
    """The nodes among ``hosts``, which are enough, whose Rabbits serve.

    Raises:
        StorageUnavailable: these are fewer than ``nodes``.
    """
    left = machine.below_serving(hosts)
    if len(left) < nodes:
        machine.check_serving(mapping.rabbits_of(hosts - left).values())
    return left


@dataclass(frozen=True)
class Placement:
    """The storage that was chosen for a job.

    Attributes:
        servers: the fields that the service reads of the job's Servers, as they are
            after the patches.
        bodies: the patches of these Servers.
        hosts: the nodes of the job that get its storage.
        units: the systemd units that the job needs on its nodes.
        unmet_wishes: a sentence for each wish about the location of nodes that is not
            fulfilled.
        excluded: the nodes without storage, and the note of the exception about them;
            None when all nodes have storage.
    """

    servers: Mapping[Reference, Json]
    bodies: Mapping[Reference, Json]
    hosts: tuple[str, ...]
    units: tuple[str, ...]
    unmet_wishes: tuple[str, ...]
    excluded: Optional[tuple[Survey, str]] = None


def choose(
    info: WorkflowInfo,
    breakdowns: Breakdowns,
    existing: Mapping[Reference, Json],
    allocation: Allocation,
    settings: Settings,
) -> Placement:
    """Choose the storage of a job on the Rabbits of an allocation.

    Args:
        existing: the Servers of persistent storage that the job uses.

    Raises:
        AllocationError: it does not fit.
    """
    hosts = allocation.hosts
    with_storage = [b for b in breakdowns if b.servers is not None]
    specs = build_servers(with_storage, allocation) if with_storage else []
    bodies = [
        _servers_body(*each, settings.scheduler)
        for each in zip(with_storage, specs, beyond_shares(specs, allocation))
    ]
    servers = {
        breakdown.servers: _servers(info, breakdown, body)
        for breakdown, body in zip(with_storage, bodies)
        if breakdown.servers is not None
    }
    unmet_wishes = check_locations(
        breakdowns, {**existing, **servers}, hosts, settings.mapping
    )
    daemons = daemons_of(breakdowns, settings)
    units = dict.fromkeys(daemon.unit for daemon in daemons if daemon.unit)
    written = dict(zip(servers, bodies))
    return Placement(servers, written, hosts, tuple(units), unmet_wishes)


def daemons_of(breakdowns: Breakdowns, settings: Settings) -> tuple[Daemon, ...]:
    """The daemons that a job requires, in the order of its directives.

    Raises:
        DirectiveError: a daemon is not known.
    """
    known = settings.config.daemons
    return tuple(known[name] for name in required_daemons(breakdowns, known))


def _servers_body(
    breakdown: Breakdown, sets: list[Json], beyond: Mapping[str, int], shared: bool
) -> Json:
    """The patch of a Servers object.

    Args:
        beyond: the bytes beyond the job's share, by Rabbit.
        shared: whether a scheduler gives out shares. If not, ``beyond`` is not written.
    """
    annotations: Json = dict(colocation_annotations(breakdown))
    if shared:
        annotations.update(beyond_annotation(beyond))
    body: Json = {"spec": {"allocationSets": sets}}
    return {**body, "metadata": {"annotations": annotations}} if annotations else body


def _servers(info: WorkflowInfo, breakdown: Breakdown, body: Json) -> Json:
    """The fields that the service reads of a Servers object after its patch."""
    labels = {WORKFLOW_LABEL: info.name} if breakdown.lifetime == JOB else {}
    return {**body, "metadata": {**body.get("metadata", {}), "labels": labels}}
