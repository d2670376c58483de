# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reads Fluxion's answers to ``find``: the paths of Rabbits, nodes and ``ssd``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Iterable, Mapping, Optional

from flux_k8s.dws.agreement import GraphRabbit
from flux_k8s.errors import BadObject
from flux_k8s.json_reader import Reader, decimal
from flux_k8s.rfc import idset
from flux_k8s.rfc.jgf import CHASSIS, NODE, RABBIT_PROPERTY, SSD

RABBITS = "property=rabbit or names=ssd0"
"""The vertices of Rabbits, and of each one's ``ssd`` the first: all have one size."""

NODES = "agfilter=true"
"""The vertices with pruning filters: those of compute nodes, and all above them. There
is no criterion for a type, and all vertices would be a hundred times as many."""

SSD_COUNT = "ssdcount"
SSD_DOWN = "ssddown"
"""The property in which a Rabbit's chassis keeps which ``ssd`` the module has set
down, as an idset (RFC 22): the next module reads it there."""


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


@dataclass(frozen=True)
class Chassis:
    """A Rabbit in Fluxion's graph.

    Attributes:
        path: of its chassis.
        ssds: how many ``ssd`` it has; 0 when the graph does not say.
        down: the numbers of those that an earlier module may have set down.
        is_chassis: the vertex is of this type: a request can name it.
        ssd_size: GiB of each ``ssd``; None if that is not known.
        nodes: the compute nodes below it; None if they are not known.
    """

    path: str
    ssds: int = 0
    down: frozenset[int] = frozenset()
    is_chassis: bool = False
    ssd_size: Optional[int] = None
    nodes: Optional[frozenset[str]] = None


@dataclass(frozen=True)
class Paths:
    """The paths of Rabbits and nodes in Fluxion's graph.

    Attributes:
        chassis: by the name of the Rabbit.
        nodes: the path above the nodes, in a graph without Rabbits.
        rabbit_of: the Rabbit above each node, where nodes were asked for.
    """

    chassis: Mapping[str, Chassis]
    nodes: Optional[str] = None
    rabbit_of: Mapping[str, str] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """The path of the graph's root."""
        paths = [chassis.path for chassis in self.chassis.values()]
        return "/" + (paths or [self.nodes or "/"])[0].split("/")[1]

    def of_node(self, host: str, rabbit: str) -> Optional[str]:
        """The path of a node, as it follows from the form of the graph.

        Args:
            rabbit: the one of the node, if the graph does not show another one.
        """
        chassis = self.chassis.get(self.rabbit_of.get(host, rabbit))
        parent = self.nodes if chassis is None else chassis.path
        return None if parent is None else f"{parent}/{host}"

    @cached_property
    def rabbits(self) -> dict[str, GraphRabbit]:
        """The Rabbits of the graph."""
        return {
            rabbit: GraphRabbit(chassis.ssds, chassis.ssd_size, chassis.nodes)
            for rabbit, chassis in self.chassis.items()
        }

    def with_nodes(self, result: Any) -> Paths:
        """These paths with the nodes below each Rabbit, from Fluxion's answer to
        ``find`` with :data:`NODES`.

        Raises:
            BadObject: it is something else.
        """
        at = {chassis.path: rabbit for rabbit, chassis in self.chassis.items()}
        rabbit_of: dict[str, str] = {}
        below: dict[str, set[str]] = {rabbit: set() for rabbit in self.chassis}
        nodes = [v for v in _vertices(result) if v.value.get("type") == NODE]
        for node in nodes:
            above, _, name = node.string("paths.containment").rpartition("/")
            while above and above not in at:
                above = above.rpartition("/")[0]
            if above:
                host = node.optional_string("name") or name
                rabbit_of[host] = at[above]
                below[at[above]].add(host)
        if not nodes:
            return self
        chassis = {
            rabbit: replace(each, nodes=frozenset(below[rabbit]))
            for rabbit, each in self.chassis.items()
        }
        return Paths(chassis, self.nodes, rabbit_of)


def read_rabbits(result: Any) -> Paths:
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
                _numbers(properties.get(SSD_DOWN)),
                metadata.optional_string("type") == CHASSIS,
            )
    return Paths(
        {
            rabbit: replace(each, ssd_size=sizes.get(each.path))
            for rabbit, each in chassis.items()
        }
    )


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


def read_parent(result: Any, host: str) -> str:
    """The path of a node's parent, from Fluxion's answer to ``find names=HOST``.

    Raises:
        BadObject: the answer is something else, or lacks the node.
    """
    for metadata in _vertices(result):
        parent, _, name = metadata.string("paths.containment").rpartition("/")
        if name == host:
            return parent
    raise BadObject("the answer", "R.graph", None, f"a vertex named {host}")


def _vertices(result: Any) -> Iterable[Reader]:
    reader = Reader("the answer", result)
    if reader.has("R"):  # null when nothing was found
        for vertex in reader.objects("R.graph.nodes"):
            yield vertex.object("metadata")


def _count(value: Any) -> int:
    return (decimal(value) if isinstance(value, str) else None) or 0


def _numbers(value: Any) -> frozenset[int]:
    try:
        return frozenset(idset.decode(value) if isinstance(value, str) else ())
    except ValueError:
        return frozenset()
