# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 40: put Rabbits into an existing resource graph.

Vertices, edges and properties stay. All nodes of a Rabbit must be directly below one
vertex. If that vertex has no other nodes, like a rack or chassis, it becomes the
Rabbit's: it gets the property ``rabbit`` and the ``ssd``. Otherwise a new chassis comes
between the vertex and the nodes. A Rabbit that the graph has already is not changed.
"""

from __future__ import annotations

import copy
from typing import Any, Optional

from flux_k8s.errors import BadObject
from flux_k8s.formats import jgf
from flux_k8s.formats.jgf import NODE, RABBIT_PROPERTY, SSD
from flux_k8s.formats.rset import ResourceSet
from flux_k8s.json_reader import Reader
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import Json
from flux_k8s.rules.jgfwriter import GraphError, chunk_size


def has_graph(rset: ResourceSet) -> bool:
    """Whether R has a graph with vertices."""
    reader = Reader("R", rset.scheduling or {}, "scheduling")
    return reader.has("graph.nodes") and bool(reader.list("graph.nodes"))


def extend(
    rset: ResourceSet,
    mapping: RabbitMapping,
    chunks: int,
    cluster: Optional[str] = None,
) -> Json:
    """The value of R's key ``scheduling``, with the mapping's Rabbits added. Nodes of R
    that the graph leaves out, such as those that Flux excludes, stay out.

    Args:
        chunks: as in :func:`~flux_k8s.rules.jgfwriter.scheduling`.
        cluster: the name that the root must have, if any.

    Raises:
        GraphError: the graph cannot be extended or is not that of R, or a Rabbit cannot
            be cut.
        BadObject: the graph is not as RFC 40 says.
    """
    graph = _Graph(copy.deepcopy(dict(rset.scheduling or {})), "R")
    if cluster is not None and graph.root != f"/{cluster}":
        raise GraphError(f"the root of R's graph is {graph.root}, not /{cluster}")
    _check_ranks(rset)
    for rabbit in mapping.rabbits:
        if rabbit not in graph.rabbits:
            size = chunk_size(mapping, rabbit, chunks)
            graph.add(rabbit, mapping.hosts_of(rabbit), chunks, size)
    return graph.finish()


def _check_ranks(rset: ResourceSet) -> None:
    """Refuse a graph that has another host than R for a rank: jobs would run there, and
    have their storage elsewhere. ``flux ion-R encode`` of flux-sched 0.54 makes such a
    graph where not all nodes have the same resources."""
    hosts = dict(zip(rset.ranks, rset.hosts))
    reader = Reader("R", rset.scheduling or {}, "scheduling")
    for metadata in (v.object("metadata") for v in reader.objects("graph.nodes")):
        rank = metadata.optional_integer("rank")
        if metadata.string("type") != NODE or rank not in hosts:
            continue
        name = metadata.string("name")
        if name != hosts[rank]:
            raise GraphError(
                f"rank {rank} is {name} in R's graph, and {hosts[rank]} in R itself"
            )


class _Graph:
    """A graph to which Rabbits are added.

    Attributes:
        root: the path of the root.
        nodes: the paths of the nodes, by host.
        rabbits: the Rabbits in the graph.
    """

    def __init__(self, scheduling: Json, name: str) -> None:
        reader = Reader(name, scheduling, "scheduling")
        reader.optional_string("writer", [w for w in jgf.WRITERS if w is not None])
        self._scheduling = scheduling
        self._vertices: list[Json] = scheduling["graph"]["nodes"]
        self._edges: list[Json] = scheduling["graph"].setdefault("edges", [])
        self._at: dict[str, Json] = {}
        self._next = 1
        for entry in reader.objects("graph.nodes"):
            metadata = entry.object("metadata")
            self._at[metadata.string("paths.containment")] = entry.value
            number = entry.string("id")
            if not (number.isascii() and number.isdigit()):
                raise entry.bad("id", "a string of digits")
            unique = metadata.optional_integer("uniq_id") or 0
            self._next = max(self._next, int(number) + 1, unique + 1)
        self._parent = _parents(reader, self._vertices)
        found = list(jgf.vertices(scheduling, name))
        self.nodes = {v.name: v.path for v in found if v.type == NODE}
        self.rabbits = {v.rabbit for v in found if v.rabbit is not None}
        roots = [path for path in self._at if path.count("/") == 1]
        if len(roots) != 1:
            raise reader.bad("graph.nodes", f"one root, not {len(roots)}")
        self.root = roots[0]
        self._crowd: dict[str, set[str]] = {}
        for path in self.nodes.values():
            self._crowd.setdefault(_above(path), set()).add(path)
        self._moved: dict[str, str] = {}

    def add(self, rabbit: str, hosts: tuple[str, ...], chunks: int, size: int) -> None:
        """Add a Rabbit above those of its compute nodes that the graph has.

        Args:
            chunks: the number of ``ssd`` vertices.
            size: GiB of each of them.

        Raises:
            GraphError: the nodes are below different vertices, or an ``ssd`` vertex is
                there already.
        """
        paths = [self.nodes[host] for host in hosts if host in self.nodes]
        above = sorted(set(map(_above, paths)))
        if len(above) > 1:
            raise GraphError(
                f"the nodes of {rabbit} are below {' and '.join(above[:2])} in R's"
                " graph, expected all of them directly below one vertex"
            )
        place = above[0] if above else self.root
        if place == self.root or self._crowd[place] != set(paths):
            place = self._insert(place, paths)
        vertex = self._at[place]["metadata"]
        properties = {RABBIT_PROPERTY: rabbit, "ssdcount": str(chunks)}
        vertex["properties"] = {**(vertex.get("properties") or {}), **properties}
        for number in range(chunks):
            path = f"{place}/{SSD}{number}"
            if path in self._at:
                raise GraphError(f"R's graph has a vertex {path} that is no Rabbit's")
            self._vertex(path, type=SSD, id=number, unit="GiB", size=size)

    def _insert(self, above: str, paths: list[str]) -> str:
        """Put a chassis between the vertex ``above`` and nodes below it. Return the
        path of the chassis."""
        number = 0
        while f"{above}/chassis{number}" in self._at:
            number += 1
        place = f"{above}/chassis{number}"
        chassis = self._vertex(place, type="chassis", id=number)
        for path in paths:
            self._parent[self._at[path]["id"]]["source"] = chassis["id"]
            self._moved[path] = f"{place}/{path.rpartition('/')[2]}"
        return place

    def _vertex(self, path: str, **metadata: Any) -> Json:
        paths = {"paths": {"containment": path}}
        vertex = {"id": str(self._next), "metadata": {**metadata, **paths}}
        self._next += 1
        self._vertices.append(vertex)
        self._at[path] = vertex
        like = next(iter(self._edges), {})
        source = self._at[_above(path)]["id"]
        self._edges.append({**like, "source": source, "target": vertex["id"]})
        return vertex

    def finish(self) -> Json:
        """The value of ``scheduling``, with the new path of each vertex."""
        for path, vertex in self._at.items():
            head, rest = path, ""
            while head and head not in self._moved:
                head, _, last = head.rpartition("/")
                rest = f"/{last}{rest}"
            if head:
                vertex["metadata"]["paths"]["containment"] = self._moved[head] + rest
        return self._scheduling


def _parents(reader: Reader, vertices: list[Json]) -> dict[str, Json]:
    """The edge to each vertex, by its id."""
    known = {vertex["id"] for vertex in vertices}
    parents: dict[str, Json] = {}
    for edge in reader.optional_objects("graph.edges"):
        for end in ("source", "target"):
            if edge.string(end) not in known:
                raise edge.bad(end, "the id of a vertex")
        parents[edge.string("target")] = edge.value
    if len(parents) != len(vertices) - 1:
        raise BadObject(
            reader.name,
            f"{reader.path}.graph.edges",
            f"{len(parents)} vertices with an edge to them",
            f"an edge to each of {len(vertices)} vertices but the root",
        )
    return parents


def _above(path: str) -> str:
    return path.rpartition("/")[0]
