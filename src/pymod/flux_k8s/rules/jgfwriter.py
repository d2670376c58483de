# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 40: write the resource graph of a system with Rabbits, for Fluxion.

Seed 001, "JGF generation". Each Rabbit is a ``chassis`` with the property
``rabbit``; directly below it are its compute nodes and its storage, cut into
equal ``ssd`` vertices: Fluxion matches the ``rabbit`` slot of a job (nodes and
``ssd``) only where one vertex has both as its children. An ``ssd`` vertex goes
to one job as a whole.

The graph of a large system has a million vertices. Most of them are cores that differ
in a number only. So the graph is made as text, a piece for each node, from one template
for all nodes with the same cores, which is cut where nodes differ.

The graph lacks the keys that Fluxion 0.54 fills in by itself (``basename``,
``uniq_id``, the name of a core), and ``writer``, which Fluxion does not accept in a
full graph. By RFC 20 the default is "fluxion".
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Collection, Iterable, Iterator, Mapping, NamedTuple

from flux_k8s.errors import DWSError
from flux_k8s.formats import idset
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jgf import NODE, RABBIT_PROPERTY, SSD, STORAGE_NODE
from flux_k8s.formats.rset import ResourceSet, Target
from flux_k8s.objects.mapping import RabbitMapping

DEFAULT_CLUSTER = "cluster0"
"""The name of the root in the graphs that Fluxion makes itself."""

DEFAULT_CHUNKS = 36
"""``ssd`` vertices for each Rabbit.

Every node of a job with storage takes at least one vertex. So there must be as many
vertices as a Rabbit has nodes (16), for all nodes to have storage at once. With 36 each
node can have two, and rounding up costs a job less than 3 % of a Rabbit. With more,
rounding costs less, but every R and every match gets longer. Fluxion's own test of a
graph with Rabbits has 36, too.
"""


class GraphError(DWSError):
    """No graph can be made of R and the mapping."""


@dataclass(frozen=True)
class Differences:
    """Hosts that R or the mapping lacks.

    Attributes:
        missing: compute nodes of the mapping that R lacks.
        apart: hosts of R that are no Rabbits and are connected to none.
    """

    missing: tuple[str, ...]
    apart: tuple[str, ...]


def compare(rset: ResourceSet, mapping: RabbitMapping) -> Differences:
    """The hosts that R or the mapping lacks."""
    known = set(rset.hosts)
    return Differences(
        missing=tuple(
            host
            for rabbit in mapping.rabbits
            for host in mapping.hosts_of(rabbit)
            if host not in known
        ),
        apart=tuple(
            host
            for host in dict.fromkeys(rset.hosts)
            if mapping.rabbit_of(host) is None and not mapping.has(host)
        ),
    )


def crowded(mapping: RabbitMapping, chunks: int) -> tuple[str, ...]:
    """The Rabbits with more nodes than chunks: not all of their nodes can have
    storage at the same time."""
    return tuple(r for r in mapping.rabbits if len(mapping.hosts_of(r)) > chunks)


def document(rset: ResourceSet, scheduling: Iterable[str]) -> Iterator[str]:
    """The text of R with another ``scheduling`` key, in pieces. A key that R has
    already is replaced."""
    bare = dataclasses.replace(rset, scheduling=None).to_json()
    yield _json(bare)[:-1] + ',"scheduling":'
    yield from scheduling
    yield "}"


def scheduling(
    rset: ResourceSet,
    mapping: RabbitMapping,
    *,
    cluster: str = DEFAULT_CLUSTER,
    chunks: int = DEFAULT_CHUNKS,
    excluded: Collection[str] = (),
) -> Iterator[str]:
    """The text of the ``scheduling`` key for the resources of R, in pieces.

    Args:
        cluster: the name of the root vertex.
        chunks: the number of ``ssd`` vertices of each Rabbit. Their size is in whole
            GiB; the rest of the Rabbit is not used.
        excluded: hosts of R that the graph leaves out.

    A host of R that is a Rabbit itself becomes a ``storage_node`` in its
    chassis, which requests for nodes do not match. All other hosts that are
    connected to no Rabbit are directly below the root.

    Raises:
        GraphError: the cluster's name cannot be that of a vertex; no node is left; or
            a Rabbit has less than a GiB for each chunk. It is raised before the first
            piece of text.
    """
    if not cluster or "/" in cluster:
        raise GraphError(
            f"{cluster!r} cannot be the name of a cluster, expected one without /"
        )
    branches = _branches(rset, mapping, cluster, chunks, frozenset(excluded))
    return _text(branches)


_NUMBER, _DETAIL, _PATH = "\0\1\2"
"""Stand in the text of leaves for what they have of their branch. No JSON text has such
a character."""

_Leaves = tuple[tuple[str, str], ...]
"""Types of vertices directly below a branch, each with their ids (an idset)."""


class _Branch(NamedTuple):
    """A vertex, and the leaves directly below it.

    Attributes:
        number: the first part of the ids of the vertex and of its leaves.
        parent: the number of the branch above; 0 above the root.
        detail: what the metadata of its leaves have in common, as JSON text.
    """

    number: int
    parent: int
    metadata: Mapping[str, Any]
    leaves: _Leaves = ()
    detail: str = ""

    @property
    def path(self) -> str:
        return str(self.metadata["paths"]["containment"])


def _branches(
    rset: ResourceSet,
    mapping: RabbitMapping,
    cluster: str,
    chunks: int,
    excluded: frozenset[str],
) -> list[_Branch]:
    """The root, then the chassis, then the nodes by rank."""
    root = f"/{cluster}"
    metadata: dict[str, Any] = {"type": "cluster", "name": cluster}
    branches = [_Branch(1, 0, {**metadata, **_paths(root)})]
    chassis_of = {}
    for id, rabbit in enumerate(mapping.rabbits):
        chassis = _chassis(len(branches) + 1, root, id, rabbit, mapping, chunks)
        chassis_of[rabbit] = chassis
        branches.append(chassis)
    properties = _properties(rset)
    targets = [target for target in rset.targets if target.host not in excluded]
    if not targets:
        raise GraphError(
            "all nodes of R are excluded, expected at least one that is not"
        )
    for target in targets:
        rabbit_host = mapping.has(target.host)
        rabbit_name = target.host if rabbit_host else mapping.rabbit_of(target.host)
        above = branches[0] if rabbit_name is None else chassis_of[rabbit_name]
        own = properties.get(target.rank, {})
        branches.append(
            _node(len(branches) + 1, above, target, own, is_rabbit=rabbit_host)
        )
    return branches


def _chassis(
    number: int, root: str, id: int, rabbit: str, mapping: RabbitMapping, chunks: int
) -> _Branch:
    size = chunk_size(mapping, rabbit, chunks)
    metadata = {
        "type": "chassis",
        "id": id,
        "properties": {RABBIT_PROPERTY: rabbit, "ssdcount": str(chunks)},
        **_paths(f"{root}/chassis{id}"),
    }
    leaves = ((SSD, idset.encode(range(chunks))),)
    return _Branch(number, 1, metadata, leaves, f'"unit":"GiB","size":{size}')


def chunk_size(mapping: RabbitMapping, rabbit: str, chunks: int) -> int:
    """The size in GiB of a Rabbit's ``ssd`` vertices.

    Raises:
        GraphError: the Rabbit has less than a GiB for each of them.
    """
    gib = mapping.capacity(rabbit) // GIB
    if not gib:
        raise GraphError(
            f"{rabbit} has {mapping.capacity(rabbit)} bytes, expected a GiB or more"
        )
    if chunks < 1 or gib < chunks:
        raise GraphError(
            f"{rabbit} has {gib} GiB, which cannot be cut into {chunks} chunks of a"
            f" GiB or more: expected 1 to {gib} chunks"
        )
    return gib // chunks


def _node(
    number: int,
    above: _Branch,
    target: Target,
    properties: Mapping[str, str],
    *,
    is_rabbit: bool,
) -> _Branch:
    metadata: dict[str, Any] = {
        "type": STORAGE_NODE if is_rabbit else NODE,
        "name": target.host,
        "rank": target.rank,
    }
    if is_rabbit:
        # Fluxion's own graphs mark the nodes of Rabbits so, for constraints.
        properties = {**properties, RABBIT_PROPERTY: ""}
    if properties:
        metadata["properties"] = properties
    metadata.update(_paths(f"{above.path}/{target.host}"))
    leaves = tuple(target.children.items())
    return _Branch(number, above.number, metadata, leaves, f'"rank":{target.rank}')


def _paths(path: str) -> dict[str, Any]:
    return {"paths": {"containment": path}}


def _properties(rset: ResourceSet) -> dict[int, dict[str, str]]:
    """The properties of each rank that has any, as the keys that Fluxion expects."""
    result: dict[int, dict[str, str]] = {}
    for name, ranks in rset.properties.items():
        for rank in ranks:
            result.setdefault(rank, {})[name] = ""
    return result


def _text(branches: list[_Branch]) -> Iterator[str]:
    """The graph, in two passes: vertices, then edges."""
    kinds = {branch.leaves for branch in branches}
    most = max(sum(len(idset.decode(ids)) for _, ids in kind) for kind in kinds)
    # The id of a leaf is the number of its branch and this many digits. Fluxion reads
    # an id as a number, so the numbers must be unique, too.
    width = len(str(most))
    templates = {kind: _template(kind, width) for kind in kinds}
    yield '{"graph":{"nodes":['
    yield from _items(_vertices(b, templates[b.leaves][0], width) for b in branches)
    yield '\n],"edges":['
    yield from _items(_edges(b, templates[b.leaves][1], width) for b in branches)
    yield "\n]}}"


def _items(pieces: Iterable[str]) -> Iterator[str]:
    """Pieces of text, as the items of an array."""
    separator = "\n"
    for piece in filter(None, pieces):
        yield separator + piece
        separator = ",\n"


def _vertices(branch: _Branch, leaves: str, width: int) -> str:
    """A branch and its leaves, as items of ``nodes``."""
    head = {"id": _id(branch.number, width), "metadata": branch.metadata}
    text = leaves.replace(_NUMBER, str(branch.number)).replace(_DETAIL, branch.detail)
    return _json(head) + text.replace(_PATH, _json(branch.path)[1:-1])


def _edges(branch: _Branch, leaves: str, width: int) -> str:
    """The edges to a branch and to its leaves, as items of ``edges``."""
    edges = leaves.replace(_NUMBER, str(branch.number))
    if not branch.parent:
        return edges[1:]
    source, target = _id(branch.parent, width), _id(branch.number, width)
    return f'{{"source":"{source}","target":"{target}"}}{edges}'


def _template(leaves: _Leaves, width: int) -> tuple[str, str]:
    """The text of the leaves' vertices and of the edges to them; each item begins with
    a comma."""
    vertices, edges = [], []
    found = ((type, id) for type, ids in leaves for id in idset.decode(ids))
    for count, (type, id) in enumerate(found, 1):
        kind, number = _json(type), f"{_NUMBER}{count:0{width}d}"
        vertices.append(
            f',{{"id":"{number}","metadata":{{"type":{kind},"id":{id},{_DETAIL},'
            f'"paths":{{"containment":"{_PATH}/{kind[1:-1]}{id}"}}}}}}'
        )
        source = f"{_NUMBER}{0:0{width}d}"
        edges.append(f',{{"source":"{source}","target":"{number}"}}')
    return "".join(vertices), "".join(edges)


def _id(number: int, width: int) -> str:
    return f"{number}{0:0{width}d}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
