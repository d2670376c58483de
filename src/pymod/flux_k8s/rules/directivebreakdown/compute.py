# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The compute nodes that breakdowns allow a job.

Two things narrow down the nodes of a job before it is scheduled: storage that exists
already, of a ``persistentdw``, and the labels that a Rabbit must carry to take the
job's own storage. Other storage of the job follows its nodes; its connections are
checked once it is placed. Nodes that use storage over the network may be anywhere.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import AbstractSet, Any, Iterable, Iterator, Mapping, Optional, Sequence

from msgspec import to_builtins

from flux_k8s.errors import (
    AllocationError,
    BadObject,
    DirectiveError,
    StorageUnavailable,
)
from flux_k8s.formats import hostlist
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.objects.servers import Servers
from flux_k8s.reasons import Reason
from flux_k8s.rules.directivebreakdown.breakdown import (
    BEST_EFFORT,
    MANDATORY,
    Breakdown,
    Labels,
    Location,
    Reference,
)


def existing_servers(breakdowns: Iterable[Breakdown]) -> tuple[Reference, ...]:
    """The Servers objects that :func:`near_hosts` has to know: those of existing
    storage to which nodes need a PCIe connection, or should have one."""
    breakdowns = tuple(breakdowns)
    needed = (*_existing(breakdowns, MANDATORY), *_existing(breakdowns, BEST_EFFORT))
    return tuple(dict.fromkeys(location.servers for _, location in needed))


def near_hosts(
    breakdowns: Iterable[Breakdown],
    servers: Mapping[Reference, Any],
    mapping: RabbitMapping,
    nodes: int = 1,
) -> Optional[frozenset[str]]:
    """The nodes with the PCIe connections that the job needs to existing storage; None
    when it needs none. Whichever of these nodes the job gets, each finds an allocation
    on its Rabbit. Where there are too few, DWS knows whether nodes may share one.

    Args:
        servers: the objects that :func:`existing_servers` names.
        nodes: the least number of nodes that the job needs.

    Raises:
        AllocationError: no compute node is connected to all of that storage,
            or fewer than the job needs.
        StorageUnavailable: the same, and some of it is on Rabbits that the mapping
            lacks.
        BadObject: a Servers object is malformed.
    """
    allowed = alone = mapping.hosts
    names: list[str] = []
    unmapped: set[str] = set()
    for breakdown, location in _existing(breakdowns, MANDATORY):
        counts = _allocations(breakdown, location, servers)
        allowed &= mapping.hosts_below(counts)
        alone &= _with_allocations(counts, mapping, nodes)
        names.append(str(location.servers))
        unmapped.update(rabbit for rabbit in counts if not mapping.has(rabbit))
    if not names:
        return None
    storage = f"the storage of {', '.join(dict.fromkeys(names))}"
    if unmapped and len(allowed) < nodes:
        rabbits = ", ".join(sorted(unmapped, key=hostlist.natural_key))
        raise StorageUnavailable(
            f"{storage} is on {rabbits}, which the rabbit mapping lacks",
            Reason.MAPPING_DISAGREES,
        )
    if not allowed:
        raise AllocationError(
            f"no compute node has the PCIe connection that is needed to {storage}"
        )
    check_enough(allowed, nodes, f"have an allocation of {storage} on their Rabbit")
    return alone if len(alone) >= nodes else allowed


def wished_hosts(
    breakdowns: Iterable[Breakdown],
    servers: Mapping[Reference, Any],
    mapping: RabbitMapping,
) -> Optional[frozenset[str]]:
    """The nodes with all PCIe connections to existing storage that the job prefers
    (bestEffort); None when it prefers none.

    Raises:
        BadObject: a Servers object is malformed.
    """
    wished: Optional[frozenset[str]] = None
    for breakdown, location in _existing(breakdowns, BEST_EFFORT):
        if location.servers in servers:
            near = mapping.hosts_below(_allocations(breakdown, location, servers))
            wished = near if wished is None else wished & near
    return wished


def labelled_hosts(
    breakdowns: Iterable[Breakdown],
    storages: Mapping[str, Labels],
    mapping: RabbitMapping,
    nodes: int = 1,
) -> Optional[frozenset[str]]:
    """The nodes below Rabbits that carry the labels which the job's storage needs;
    None when that excludes none.

    An allocation set to which nodes need no PCIe connection may go to a Rabbit that
    none of the nodes is below. Its labels count only as long as enough nodes are left.

    Args:
        storages: the labels of each Storage, fit for use or not. A Rabbit of the
            mapping that is missing here may have any labels.
        nodes: the least number of nodes that the job needs.

    Raises:
        AllocationError: no Rabbit carries all labels of a set, or the Rabbits that do
            have fewer nodes than the job needs.
    """
    excluded: frozenset[str] = frozenset()
    labelled = [
        (
            f"{breakdown.name}: allocation set {entry.label}",
            entry,
            breakdown.needs_own_rabbit(index),
        )
        for breakdown in breakdowns
        for index, entry in enumerate(breakdown.allocation_sets)
        if entry.labels
    ]
    for name, entry, near in sorted(labelled, key=lambda found: not found[2]):
        lacking = {r for r in storages if entry.missing_label(storages[r]) is not None}
        needed = ", ".join(entry.labels)
        if lacking.issuperset(mapping.rabbits):
            raise AllocationError(f"{name}: no Rabbit carries all of: {needed}")
        hosts = excluded | mapping.hosts_below(lacking)
        if hosts == excluded:
            continue
        left = mapping.hosts - hosts
        if near:
            text = f"are below Rabbits that carry {needed}, which {name} needs"
            check_enough(left, nodes, text)
        if len(left) >= nodes:
            excluded = hosts
    return mapping.hosts - excluded if excluded else None


def check_enough(hosts: AbstractSet[str], nodes: int, what: str) -> None:
    """Refuse a job that needs more nodes than ``hosts`` has.

    Args:
        what: the end of the error message: the property that only these hosts have.

    Raises:
        AllocationError: there are too few hosts. The error names them.
    """
    if len(hosts) < nodes:
        names = hostlist.encode_sorted(hosts)
        raise AllocationError(
            f"the job asks for {nodes} nodes, but only {names} ({len(hosts)}) {what}"
        )


def check_locations(
    breakdowns: Iterable[Breakdown],
    servers: Mapping[Reference, Any],
    hosts: Sequence[str],
    mapping: RabbitMapping,
) -> tuple[str, ...]:
    """Check that a job's nodes have the connections to its storage that they need.

    Args:
        servers: the job's own Servers, as they are about to be written, and those that
            :func:`existing_servers` names. A bestEffort location whose Servers are
            missing here counts as satisfied.

    Returns:
        A sentence for each bestEffort location that is not satisfied.

    Raises:
        AllocationError: a node lacks a connection that is mandatory.
        BadObject: a Servers object is malformed.
    """
    unmet = []
    rabbit_of = mapping.rabbits_of(hosts)
    for breakdown, location in _locations(breakdowns):
        mandatory = location.pcie == MANDATORY
        if not mandatory and location.servers not in servers:
            continue
        near = _allocations(breakdown, location, servers)
        far = [host for host, rabbit in rabbit_of.items() if rabbit not in near]
        if not far:
            continue
        text = (
            f"{breakdown.name}: {hostlist.encode(far)} without a PCIe connection"
            f" to allocation set {location.index} of Servers {location.servers}"
        )
        if mandatory:
            raise AllocationError(f"{text}, which is mandatory")
        unmet.append(text)
    return tuple(unmet)


def check_storage_of_nodes(
    breakdowns: Iterable[Breakdown],
    servers: Mapping[Reference, Any],
    rabbit_of: Mapping[str, Optional[str]],
    mapping: RabbitMapping,
) -> None:
    """Check that the nodes of a job can have the storage that was made before the job
    had them.

    Args:
        servers: the job's Servers.
        rabbit_of: the nodes of the job, each with its Rabbit.

    Raises:
        AllocationError: a Rabbit has more of the job's nodes than allocations for them,
            or a node lacks a connection that is mandatory.
        BadObject: a Servers object is malformed.
    """
    breakdowns = tuple(breakdowns)
    nodes = Counter(rabbit_of.values())
    for breakdown in breakdowns:
        for index, entry in enumerate(breakdown.allocation_sets):
            if breakdown.servers is None or not entry.strategy.own:
                continue
            place = Location(breakdown.servers, index, {})
            made = _allocations(breakdown, place, servers)
            for rabbit, number in nodes.items():
                there = made.get(rabbit or "", 0)
                if number > there:
                    raise AllocationError(
                        f"the job has {number} nodes below {rabbit or 'no Rabbit'}, and"
                        f" its storage was made for {there} there before it had nodes",
                        Reason.OTHER_NODES,
                    )
    check_locations(breakdowns, servers, tuple(rabbit_of), mapping)


def required_daemons(
    breakdowns: Iterable[Breakdown], known: Iterable[str]
) -> tuple[str, ...]:
    """The daemons that a job requires, each once, in the order of its directives.

    Args:
        known: the daemons that the site can enable.

    Raises:
        DirectiveError: a daemon is not known.
    """
    known = sorted(known)
    daemons: dict[str, None] = {}
    for breakdown in breakdowns:
        for daemon in breakdown.requires:
            if daemon not in known:
                raise _unavailable(breakdown.directive, daemon, known)
            daemons[daemon] = None
    return tuple(daemons)


def _unavailable(directive: str, daemon: str, known: Sequence[str]) -> DirectiveError:
    """The error for a daemon that the site does not configure, with the advice for the
    administrator."""
    start = max(directive.find(daemon), 0)
    here = f"one of {', '.join(known)}" if known else "no requires= at all"
    return DirectiveError(
        directive,
        start,
        start + len(daemon),
        f"requires={daemon} is not available here, expected {here} (an administrator"
        f" makes it available with a table [rabbit.daemons.{daemon}] in Flux's"
        " configuration)",
    )


def _locations(breakdowns: Iterable[Breakdown]) -> Iterator[tuple[Breakdown, Location]]:
    """The locations at which nodes need a PCIe connection, or should have one."""
    for breakdown in breakdowns:
        for location in breakdown.locations:
            if location.pcie is not None:
                yield breakdown, location


def _existing(
    breakdowns: Iterable[Breakdown], priority: str
) -> list[tuple[Breakdown, Location]]:
    """The locations of storage that is not the job's own, to which nodes have to have a
    PCIe connection with this priority."""
    breakdowns = tuple(breakdowns)
    own = {breakdown.servers for breakdown in breakdowns}
    return [
        (breakdown, location)
        for breakdown, location in _locations(breakdowns)
        if location.servers not in own and location.pcie == priority
    ]


def _with_allocations(
    counts: Mapping[str, int], mapping: RabbitMapping, nodes: int
) -> frozenset[str]:
    """The compute nodes of which a job of ``nodes`` nodes may get any, and each finds
    an allocation: as many below a Rabbit as it has allocations, if these are fewer than
    the job's nodes."""
    hosts = (
        mapping.hosts_of(rabbit)[: None if count >= nodes else count]
        for rabbit, count in counts.items()
    )
    return frozenset(chain.from_iterable(hosts))


def _allocations(
    breakdown: Breakdown, location: Location, servers: Mapping[Reference, Any]
) -> Counter[str]:
    """The number of allocations of a set on each of its Rabbits."""
    if location.servers not in servers:
        raise AllocationError(
            f"{breakdown.name}: Servers {location.servers}, which the location of"
            " compute nodes depends on, does not exist"
        )
    found = Servers.read(servers[location.servers])
    if location.index >= len(found.sets):
        sets = to_builtins(found.sets)
        expected = f"an array with an entry {location.index}"
        raise BadObject(found.name, "spec.allocationSets", sets, expected)
    counts: Counter[str] = Counter()
    for place in found.sets[location.index].places or ():
        counts[place.rabbit] += place.count
    return +counts
