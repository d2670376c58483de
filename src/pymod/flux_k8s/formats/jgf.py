# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 40: Fluxion's resource graph, as it stands in R's ``scheduling`` key.

A Rabbit is a ``chassis`` vertex (an old graph may call it a rack) that carries
the property ``rabbit``, whose value is the Rabbit's name. Below it are the
``node`` vertices of its compute nodes and the ``ssd`` vertices of its storage;
the ``size`` of one ``ssd`` vertex is in GiB, so that a jobspec's ``count`` of
``ssd`` is in GiB too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, Any, Iterator, Mapping, NamedTuple, Optional

from flux_k8s.errors import BadObject
from flux_k8s.json_reader import Reader

RABBIT_PROPERTY = "rabbit"
"""The vertex property that holds the name of a Rabbit."""

WRITERS = (None, "fluxion", "fluxion:jgf")
"""The values of ``scheduling.writer`` whose graph has all that is allocated."""

SHORTHAND = "fluxion:jgf_shorthand"
"""The writer whose graph leaves out all that is below an exclusive vertex: the cores of
a node that a job has as a whole, and all of a Rabbit that a job has as a whole."""

SSD = "ssd"
NODE = "node"
STORAGE_NODE = "storage_node"
"""The node of a Rabbit itself, where that is a node of the instance."""
CHASSIS = "chassis"


class Vertex(NamedTuple):
    """One resource of the graph.

    Attributes:
        type: ``cluster``, ``chassis``, ``node``, ``ssd``...
        name: the vertex's name. Fluxion leaves it out where it is made of the type
            and the id.
        path: the vertex's place in the machine, as in ``/cluster0/chassis1/ssd0``.
        size: in the unit of the type (GiB for ``ssd``).
        rabbit: the value of the property ``rabbit``, None without one.
        exclusive: whether the job has all that is below it.
    """

    type: str
    name: str
    path: str
    size: int
    rabbit: Optional[str]
    exclusive: bool


@dataclass(frozen=True)
class Graph:
    """The Rabbits of a graph.

    Attributes:
        rabbit_of: for each host in the graph, the Rabbit above it, or None.
        ssd: for each Rabbit in the graph, GiB of storage; None where the graph leaves
            out the storage, since the job has the whole Rabbit.
        complete: whether the graph has all nodes. If not, it leaves out the nodes of
            chassis and racks that the job has as a whole.
    """

    rabbit_of: Mapping[str, Optional[str]]
    ssd: Mapping[str, Optional[int]]
    complete: bool = True


def vertices(scheduling: Mapping[str, Any], name: str) -> Iterator[Vertex]:
    """The nodes, the storage and the vertices with properties of a graph.

    An R without a graph has no vertices: its scheduler is not Fluxion, the
    match-format leaves the graph out, or the writer has another format.
    """
    reader = Reader(name, scheduling, "scheduling")
    writer = reader.optional_string("writer")
    if writer not in (*WRITERS, SHORTHAND) or not reader.has("graph"):
        return
    for index, node in enumerate(reader.list("graph.nodes")):
        # A graph may have a million cores: each is skipped after one test.
        if not _is_unremarkable(node):
            place = f"{reader.path}.graph.nodes[{index}]"
            yield _vertex(Reader(name, node, place).object("metadata"))


def parse(scheduling: Mapping[str, Any], name: str = "R") -> Graph:
    """Read the Rabbits of the graph in ``scheduling``. Errors call R ``name``.

    Raises:
        BadObject: the graph is not as RFC 40 says, or has storage that belongs to no
            Rabbit: that of a node, say, which the scheduler has taken for a Rabbit's.
    """
    found = tuple(vertices(scheduling, name))
    complete = scheduling.get("writer") != SHORTHAND
    rabbit_at = {v.path: v.rabbit for v in found if v.rabbit is not None}
    nodes = frozenset(v.path for v in found if v.type == NODE)
    whole = {v.rabbit for v in found if v.exclusive and not complete}
    rabbit_of: dict[str, Optional[str]] = {}
    ssd = dict.fromkeys(rabbit_at.values(), 0)
    for vertex in found:
        if vertex.type not in (NODE, SSD):
            continue
        if vertex.type == NODE:
            rabbit_of[vertex.name] = _rabbit_above(vertex.path, rabbit_at)
            continue
        rabbit = _rabbit_above(vertex.path, rabbit_at, nodes)
        if rabbit is not None:
            ssd[rabbit] += vertex.size
        else:
            raise BadObject(
                name,
                "scheduling.graph.nodes",
                vertex.path,
                f"an ssd below a vertex with the property {RABBIT_PROPERTY}, and below"
                " no node",
            )
    sizes = {rabbit: None if rabbit in whole else ssd[rabbit] for rabbit in ssd}
    return Graph(rabbit_of, sizes, complete)


def _is_unremarkable(node: Any) -> bool:
    """Whether ``node`` is a vertex that :func:`vertices` leaves out."""
    metadata = node.get("metadata") if isinstance(node, dict) else None
    if not isinstance(metadata, dict) or metadata.get("properties") is not None:
        return False
    type = metadata.get("type")
    return isinstance(type, str) and type not in ("", NODE, SSD)


def _vertex(metadata: Reader) -> Vertex:
    type = metadata.string("type")
    name = metadata.optional_string("name")
    if name is None:
        basename = metadata.optional_string("basename") or type
        name = f"{basename}{metadata.integer('id')}"
    return Vertex(
        type,
        name,
        metadata.string("paths.containment"),
        metadata.integer("size", minimum=0) if metadata.has("size") else 1,
        _rabbit_name(metadata) if metadata.has("properties") else None,
        metadata.value.get("exclusive") is True,
    )


def _rabbit_name(metadata: Reader) -> Optional[str]:
    """The value of the property ``rabbit``. In Fluxion's graphs an empty value marks
    the Rabbit's own node, and names no Rabbit: None."""
    place = f"properties.{RABBIT_PROPERTY}"
    return (metadata.text(place) or None) if metadata.has(place) else None


def _rabbit_above(
    path: str, rabbit_at: Mapping[str, str], below: AbstractSet[str] = frozenset()
) -> Optional[str]:
    """The Rabbit of the nearest vertex at or above ``path``, if that is not at or above
    one of ``below``."""
    while path and path not in below:
        if path in rabbit_at:
            return rabbit_at[path]
        path = path.rpartition("/")[0]
    return None
