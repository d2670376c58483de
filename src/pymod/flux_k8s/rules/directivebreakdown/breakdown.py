# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A DirectiveBreakdown, read and checked, and what its allocation strategies mean."""

from __future__ import annotations

import enum
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Mapping, Optional, Sequence

from flux_k8s.errors import NotReady
from flux_k8s.json_reader import Reader

Labels = Mapping[str, str]
"""``metadata.labels`` of a Storage."""

JOB = "job"
PERSISTENT = "persistent"

PHYSICAL = "physical"
NETWORK = "network"
MANDATORY = "mandatory"
BEST_EFFORT = "bestEffort"

MAX_COUNT = 2**16
"""More allocations than this in one set are taken for a mistake."""

_FIELD_PATH = re.compile(r"(?:servers\.)?spec\.allocationSets\[([0-9]{1,9})\]\Z")


class Place(enum.IntEnum):
    """The Rabbits that allocations go to. Those that leave the least choice come first,
    and are placed first."""

    OWN_RABBIT = 0
    """One allocation for each compute node, on the node's own Rabbit."""
    EACH_RABBIT = 1
    """One allocation on each Rabbit of the job."""
    ANY_RABBIT = 2
    """A number of allocations on the Rabbits that have room."""


@dataclass(frozen=True)
class Strategy:
    """An allocation strategy.

    Attributes:
        name: its name in DWS.
        place: the Rabbits that its allocations go to.
        number: the number of allocations on any Rabbits; None where the breakdown gives
            it, or it is our choice.
    """

    name: str
    place: Place
    number: Optional[int] = None

    @property
    def each(self) -> bool:
        """Whether each allocation stands by itself. ``minimumCapacity`` is that of each
        then, and a job asks for so much with each of its nodes. Where an allocation is
        missing, only the nodes below its Rabbit lack their storage. If not, all
        allocations together have the capacity and serve all nodes of the job."""
        return self.place is not Place.ANY_RABBIT

    @property
    def own(self) -> bool:
        """Whether a node can do only with an allocation on its own Rabbit."""
        return self.place is Place.OWN_RABBIT


STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        Strategy("AllocatePerCompute", Place.OWN_RABBIT),
        Strategy("AllocatePerServer", Place.EACH_RABBIT),
        Strategy("AllocateAcrossServers", Place.ANY_RABBIT),
        Strategy("AllocateSingleServer", Place.ANY_RABBIT, number=1),
    )
}
"""All strategies, by name. A new one is a new row (CONTRIBUTING.md)."""


@dataclass(frozen=True)
class Reference:
    """Namespace and name of a Kubernetes object whose kind is known."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class AllocationSet:
    """Allocations that are alike.

    Attributes:
        label: the label of the set in Servers, which may be any text.
        minimum_capacity: bytes of each allocation, or of all together, by the strategy.
        labels: the labels that a Storage must carry, as ``key=value`` or ``key``.
        colocation: keys. A Rabbit takes at most one allocation for each key.
        count: the number of allocations, where the strategy leaves it to the breakdown.
        scale: 1 to 10, a hint to that number; see :mod:`.servers`.
    """

    label: str
    strategy: Strategy
    minimum_capacity: int
    labels: tuple[str, ...] = ()
    colocation: tuple[str, ...] = ()
    count: Optional[int] = None
    scale: Optional[int] = None

    @property
    def number(self) -> Optional[int]:
        """The number of allocations that share the capacity; None where that is our
        choice, or each has its own."""
        return None if self.strategy.each else self.strategy.number or self.count

    def missing_label(self, labels: Labels) -> Optional[str]:
        """The first label of the set that a Storage with ``labels`` lacks."""
        for need in self.labels:
            key, equals, value = need.partition("=")
            if key not in labels or (equals and labels[key] != value):
                return need
        return None


@dataclass(frozen=True)
class Location:
    """Where compute nodes must be: they need ``access`` to the allocations of set
    number ``index`` in the Servers object ``servers``. Each type of access (physical,
    network) has a priority (mandatory, bestEffort)."""

    servers: Reference
    index: int
    access: Mapping[str, str]

    @property
    def pcie(self) -> Optional[str]:
        """The priority of a PCIe connection; None where nodes need none."""
        return self.access.get(PHYSICAL)


@dataclass(frozen=True)
class Breakdown:
    """The storage and the nodes that one ``#DW`` directive needs.

    Attributes:
        name: the object as errors call it, with kind and namespace.
        directive: the directive, as the user wrote it.
        lifetime: ``job`` or ``persistent``; None for a directive that asks for
            no storage (``persistentdw``, ``copy_in``...).
        allocation_sets: in the order that Servers must keep.
        servers: the object to write the allocations to; None without storage.
        locations: the places of the nodes, all of which must be satisfied.
        requires: names of daemons that the job needs on its nodes.
    """

    name: str
    directive: str
    lifetime: Optional[str] = None
    allocation_sets: tuple[AllocationSet, ...] = ()
    servers: Optional[Reference] = None
    locations: tuple[Location, ...] = ()
    requires: tuple[str, ...] = ()

    def needs_pcie(self, index: int) -> bool:
        """Whether compute nodes must have a PCIe connection to allocation set number
        ``index`` of this breakdown."""
        return any(
            location.servers == self.servers
            and location.index == index
            and location.pcie == MANDATORY
            for location in self.locations
        )

    def needs_own_rabbit(self, index: int) -> bool:
        """Whether each compute node must be below a Rabbit with an allocation of set
        number ``index``."""
        return self.allocation_sets[index].strategy.own or self.needs_pcie(index)


def is_networked(sets: int) -> bool:
    """Whether nodes reach a file system of so many allocation sets over the network. A
    node has a PCIe connection to one Rabbit, and the sets may be on several."""
    return sets > 1


def parse(obj: Any) -> Breakdown:
    """Read a DirectiveBreakdown that is ready.

    Raises:
        NotReady: ``status.ready`` is not true yet.
        BadObject: a field is missing, of the wrong type, out of range or of an
            unknown kind.
    """
    reader = Reader("DirectiveBreakdown", obj)
    own = Reference(
        reader.optional_string("metadata.namespace") or "default",
        reader.string("metadata.name"),
    )
    reader = Reader(f"DirectiveBreakdown {own}", obj)
    if not reader.optional_boolean("status.ready"):
        error = reader.bad("status.ready", "true")
        raise NotReady(error.name, error.path, error.value, error.expected)
    storage = reader.optional_object("status.storage")
    allocation_sets = () if storage is None else _allocation_sets(storage)
    servers = None
    if storage is not None and allocation_sets:
        servers = _reference(storage.object("reference"), own.namespace)
    constraints = reader.optional_objects("status.compute.constraints.location")
    locations = [_location(location, own.namespace) for location in constraints]
    return Breakdown(
        name=reader.name,
        directive=reader.string("spec.directive"),
        lifetime=None
        if storage is None
        else storage.string("lifetime", (JOB, PERSISTENT)),
        allocation_sets=allocation_sets,
        servers=servers,
        locations=_with_network_access(locations, servers),
        requires=reader.optional_strings("status.requires")
        or reader.optional_strings("status.requiredDaemons"),
    )


def _allocation_sets(storage: Reader) -> tuple[AllocationSet, ...]:
    return tuple(
        AllocationSet(
            label=entry.string("label"),
            strategy=STRATEGIES[entry.string("allocationStrategy", (*STRATEGIES,))],
            minimum_capacity=entry.integer("minimumCapacity", minimum=1),
            labels=entry.optional_strings("constraints.labels"),
            colocation=_colocation(entry),
            count=entry.optional_integer("constraints.count", 1, MAX_COUNT),
            scale=entry.optional_integer("constraints.scale", 1, 10),
        )
        for entry in storage.optional_objects("allocationSets")
    )


def _colocation(entry: Reader) -> tuple[str, ...]:
    keys = []
    for constraint in entry.optional_objects("constraints.colocation"):
        constraint.string("type", ("exclusive",))
        keys.append(constraint.text("key"))
    return tuple(keys)


def _location(location: Reader, namespace: str) -> Location:
    reference = location.object("reference")
    path = reference.string("fieldPath")
    match = _FIELD_PATH.match(path)
    if match is None:
        raise reference.bad("fieldPath", "servers.spec.allocationSets[NUMBER]")
    access: dict[str, str] = {}
    for each in location.objects("access"):
        type = each.string("type", (PHYSICAL, NETWORK))
        priority = each.string("priority", (MANDATORY, BEST_EFFORT))
        if access.get(type) != MANDATORY:
            access[type] = priority
    return Location(_reference(reference, namespace), int(match[1]), access)


def _with_network_access(
    locations: Sequence[Location], own: Optional[Reference]
) -> tuple[Location, ...]:
    """The locations, corrected. NNF says of every ``persistentdw`` that its nodes need
    a PCIe connection to each allocation set, also where they need none."""
    sets = Counter(location.servers for location in locations)
    return tuple(
        replace(location, access={NETWORK: MANDATORY})
        if location.servers != own
        and is_networked(sets[location.servers])
        and location.pcie == MANDATORY
        else location
        for location in locations
    )


def _reference(reference: Reader, namespace: str) -> Reference:
    if reference.has("kind"):
        reference.string("kind", ("Servers",))
    return Reference(
        reference.optional_string("namespace") or namespace, reference.string("name")
    )
