# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Fluxion's graph: its Rabbits, nodes and ``ssd``, by its answers to ``find``.

The nodes of a Rabbit are expected below the vertex that has its name in the property
``rabbit``, as in the graphs of ``flux dws2jgf``; its ``ssd`` beside them as ``ssd0``,
``ssd1``..., with their number in the property ``ssdcount``.

Storage that no job holds, as that of a persistent file system, is in the graph only by
``ssd`` that are down. Each of these must be one that no job has: as long as a job has
it, it takes nothing away, and the job's end brings nothing back.

Fluxion gives a vertex that is down to no job, and can be asked which of them jobs have.
So the first ``ssd`` are set down, then Fluxion is asked about them, and for each that
a job has another is set down, until there are enough. Only then the superfluous ones
are set up again. When there are not enough, all of them are down, and no job gets any
until jobs have given back enough. The match policies ``first`` and ``firstnodex`` give
the last ``ssd`` first: the first ones are usually free.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import (
    AbstractSet,
    Any,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    NamedTuple,
    Optional,
)

from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jgf import CHASSIS, NODE, RABBIT_PROPERTY, SSD
from flux_k8s.json_reader import Reader, decimal
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import Json
from flux_k8s.rules.agreement import GraphRabbit

RABBITS = "property=rabbit or names=ssd0"
"""The vertices of Rabbits, and of each one's ``ssd`` the first: all have one size."""

NODES = "agfilter=true"
"""The vertices with pruning filters: those of compute nodes, and all above them. There
is no criterion for a type, and all vertices would be a hundred times as many."""

DOWN = "status=down"
"""The vertices that are down: nodes that are away, and ``ssd`` kept from jobs."""

ALLOCATED = "status=down and sched-now=allocated"
"""Those of them that jobs have."""

SSD_COUNT = "ssdcount"


class Change(NamedTuple):
    """``ssd`` to be set down, or up, by their numbers."""

    numbers: list[int]
    down: bool


@dataclass(frozen=True)
class Ssds:
    """The ``ssd`` of a Rabbit that jobs may have.

    Attributes:
        size: GiB of each. A job gets an ``ssd`` as a whole.
        count: how many there are.
        withheld: how many more there would be without storage that no job has.
    """

    size: int
    count: int
    withheld: int = 0


@dataclass
class Chassis:
    """A Rabbit in Fluxion's graph.

    Attributes:
        path: of its chassis.
        ssds: how many ``ssd`` it has; 0 when the graph does not say.
        is_chassis: the vertex is of this type: a request can name it.
        ssd_size: GiB of each ``ssd`` in the graph; None if that is not known.
        nodes: those below it; None if Fluxion does not show nodes.
        size: GiB of each ``ssd``, as ``flux dws2jgf`` cuts a Rabbit; 0 if that is not
            known.
        down: the numbers of the ``ssd`` that are down.
        free: those of them that no job has, as Fluxion has said. They stay so as long
            as they are down.
        asked: Fluxion has said it of all that are down.
        refused: Fluxion does not let them be changed.
    """

    path: str
    ssds: int = 0
    is_chassis: bool = False
    ssd_size: Optional[int] = None
    nodes: Optional[frozenset[str]] = None
    size: int = 0
    down: set[int] = field(default_factory=set)
    free: set[int] = field(default_factory=set)
    asked: bool = False
    refused: bool = False

    def needed(self, bytes: int) -> int:
        """How many are needed for so many bytes."""
        return -(-bytes // (self.size * GIB)) if self.size else 0

    def set(self, number: int, down: bool) -> None:
        """Note what Fluxion has carried out."""
        if down:
            self.down.add(number)
            self.asked = False
        else:
            self.down.discard(number)
            self.free.discard(number)

    def see_allocated(self, allocated: AbstractSet[int]) -> None:
        """Note which of those that are down jobs have."""
        self.free, self.asked = self.down - allocated, True

    def change(self, needed: int) -> Optional[Change]:
        """The next change, so that as many are down that no job has; None if none is
        needed, or possible."""
        if needed >= self.ssds:
            lacking, kept = self.ssds - len(self.down), self.down
        else:
            taken = len(self.down - self.free) if self.asked else 0
            lacking = needed + taken - len(self.down)
            kept = {*sorted(self.free)[:needed]}
        if lacking > 0:
            up = [n for n in range(self.ssds) if n not in self.down]
            return Change(up[:lacking], True) if up else None
        if len(kept) < needed:
            return None  # jobs have too many, or Fluxion is to be asked which they have
        superfluous = sorted(self.down - kept)
        return Change(superfluous, False) if superfluous else None

    def is_unsure(self, needed: int) -> bool:
        """Whether Fluxion is to be asked which of those that are down jobs have, when
        there is no :meth:`change`."""
        return len(self.free) < needed < self.ssds and not self.asked

    def is_short(self, needed: int) -> bool:
        """Whether too few are left that no job has."""
        return len(self.free) < needed < self.ssds == len(self.down)

    def withholds(self, needed: int) -> bool:
        """Whether jobs get none of as many as are needed, or none at all."""
        known = self.refused or needed <= len(self.free)
        return known or len(self.down) == self.ssds


@dataclass(frozen=True)
class Node:
    """A node in Fluxion's graph."""

    path: str
    properties: AbstractSet[str] = frozenset()


@dataclass
class Graph:
    """Fluxion's graph as it was read, with what was changed since.

    Attributes:
        chassis: by the name of the Rabbit.
        nodes: the path of each node, by its name.
        marked: the nodes that carry each property.
    """

    chassis: Mapping[str, Chassis]
    nodes: dict[str, str]
    marked: Mapping[str, set[str]]

    @property
    def root(self) -> str:
        """The path of the graph's root; "" if the graph shows nothing."""
        paths = [*(each.path for each in self.chassis.values()), *self.nodes.values()]
        return "/" + paths[0].split("/")[1] if paths else ""

    @property
    def has_chassis(self) -> bool:
        """Whether each Rabbit is a chassis."""
        return all(each.is_chassis for each in self.chassis.values())

    @cached_property
    def rabbits(self) -> dict[str, GraphRabbit]:
        """The Rabbits of the graph."""
        return {
            rabbit: GraphRabbit(each.ssds, each.ssd_size, each.nodes)
            for rabbit, each in self.chassis.items()
        }


async def read_graph(
    find: Callable[[str], Awaitable[Json]],
    mapping: RabbitMapping,
    properties: Collection[str],
) -> Graph:
    """Read what is there now.

    Args:
        find: asks Fluxion for the vertices of some criteria.
        properties: those that nodes may carry.

    Raises:
        RpcError: Fluxion does not answer.
        BadObject: an answer is malformed.
    """
    chassis = read_rabbits(await find(RABBITS))
    nodes = read_nodes(await find(NODES))
    paths = {host: node.path for host, node in nodes.items()}
    if nodes:
        for rabbit, hosts in nodes_below(chassis, nodes).items():
            chassis[rabbit].nodes = hosts
    else:
        # The graph has no pruning filters at nodes, which are taken to be below the
        # vertices of their Rabbits.
        for rabbit, each in chassis.items():
            for host in mapping.hosts_of(rabbit):
                paths[host] = f"{each.path}/{host}"
        for key in properties:
            nodes.update(read_nodes(await find(f"property={key}")))
    marked = {
        key: {host for host, node in nodes.items() if key in node.properties}
        for key in properties
    }
    down = read_ssds(await find(DOWN))
    for rabbit, each in chassis.items():
        if each.ssds:
            each.size = mapping.capacity(rabbit) // GIB // each.ssds
            each.down = down.get(each.path, set()).intersection(range(each.ssds))
    return Graph(chassis, paths, marked)


def read_rabbits(result: Any) -> dict[str, Chassis]:
    """The Rabbits in Fluxion's answer to ``find`` with :data:`RABBITS`.

    Raises:
        BadObject: it is something else.
    """
    chassis: dict[str, Chassis] = {}
    sizes: dict[str, int] = {}
    for metadata in _vertices(result):
        if metadata.optional_string("type") == SSD and metadata.has("size"):
            parent = metadata.string("paths.containment").rpartition("/")[0]
            sizes[parent] = metadata.integer("size", minimum=0)
        if metadata.optional_string("type") == NODE or not metadata.has("properties"):
            continue
        properties = metadata.object("properties").value
        rabbit = properties.get(RABBIT_PROPERTY)
        if isinstance(rabbit, str) and rabbit:
            chassis[rabbit] = Chassis(
                metadata.string("paths.containment"),
                _count(properties.get(SSD_COUNT)),
                metadata.optional_string("type") == CHASSIS,
            )
    for each in chassis.values():
        each.ssd_size = sizes.get(each.path)
    return chassis


def read_nodes(result: Any) -> dict[str, Node]:
    """The nodes in Fluxion's answer to ``find``, by name.

    Raises:
        BadObject: it is something else.
    """
    nodes: dict[str, Node] = {}
    for metadata in _vertices(result):
        if metadata.optional_string("type") == NODE:
            path = metadata.string("paths.containment")
            name = metadata.optional_string("name") or path.rpartition("/")[2]
            found = metadata.optional_object("properties")
            properties = () if found is None else found.value
            nodes[name] = Node(path, frozenset(properties))
    return nodes


def nodes_below(
    chassis: Mapping[str, Chassis], nodes: Mapping[str, Node]
) -> dict[str, frozenset[str]]:
    """The nodes below each Rabbit."""
    at = {each.path: rabbit for rabbit, each in chassis.items()}
    below: dict[str, set[str]] = {rabbit: set() for rabbit in chassis}
    for host, node in nodes.items():
        above = node.path.rpartition("/")[0]
        while above and above not in at:
            above = above.rpartition("/")[0]
        if above:
            below[at[above]].add(host)
    return {rabbit: frozenset(hosts) for rabbit, hosts in below.items()}


def read_ssds(result: Any) -> dict[str, set[int]]:
    """The numbers of the ``ssd`` in Fluxion's answer, by the path of their chassis.

    Raises:
        BadObject: it is something else.
    """
    numbers: dict[str, set[int]] = {}
    for metadata in _vertices(result):
        if metadata.optional_string("type") == SSD:
            parent, _, name = metadata.string("paths.containment").rpartition("/")
            number = _count(name[len(SSD) :])
            numbers.setdefault(parent, set()).add(number)
    return numbers


def _vertices(result: Any) -> Iterable[Reader]:
    reader = Reader("the answer", result)
    if reader.has("R"):  # null when nothing was found
        for vertex in reader.objects("R.graph.nodes"):
            yield vertex.object("metadata")


def _count(value: Any) -> int:
    return (decimal(value) if isinstance(value, str) else None) or 0
