# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whether the rabbit mapping, the scheduler's resource graph and the cluster agree
about the Rabbits.

Each of them comes from another file or program, and may be older than the others. Jobs
that the scheduler gives storage by a graph that contradicts the mapping cannot run.

No object of the cluster has the size of a Rabbit. ``Storage.status.capacity`` is what
was free when NNF looked last, which may be long ago: the Rabbit has at least that. And
it has no more than its drives together. So a size between the two is not doubted, even
if it is wrong: jobs that end, or begin, make no Rabbit look wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Iterable, Iterator, Mapping, Optional

from flux_k8s.formats import hostlist
from flux_k8s.formats.directives import GIB
from flux_k8s.objects.mapping import RabbitMapping

RABBITS = "\0"
"""Stands in a sentence for the names of Rabbits."""


@dataclass(frozen=True)
class GraphRabbit:
    """A Rabbit of the resource graph.

    Attributes:
        ssds: how many ``ssd`` it has; 0 if that is not known.
        ssd_size: GiB of each; None if that is not known.
        nodes: the compute nodes below it; None if they are not known.
    """

    ssds: int = 0
    ssd_size: Optional[int] = None
    nodes: Optional[frozenset[str]] = None


@dataclass(frozen=True)
class Sizes:
    """What a Storage says about the size of its Rabbit, in bytes.

    Attributes:
        free: what was free when NNF looked last.
        drives: the size of all drives; None if one of them does not tell its size.
    """

    free: int = 0
    drives: Optional[int] = None


@dataclass(frozen=True)
class Files:
    """What messages call the mapping and the graph: their files, best of all."""

    mapping: str = "rabbit.mapping"
    graph: str = "the graph"


class Kind(Enum):
    """What is wrong with a Rabbit."""

    UNMAPPED = "unmapped"
    """The graph has it, the mapping lacks it."""
    UNUSED = "unused"
    """The cluster has it, mapping and graph lack it."""
    NOT_IN_GRAPH = "ungraphed"
    """The mapping has it, the graph lacks it."""
    NOT_IN_CLUSTER = "absent"
    """The mapping has it, the cluster lacks it."""
    OTHER_NODES = "other nodes"
    """The graph has nodes below it that the mapping has not."""
    OTHER_SSDS = "other ssd"
    """The graph has another size."""
    TOO_LARGE = "too large"
    """The mapping has more than there is."""
    TOO_SMALL = "too small"
    """The mapping has less than there is."""


AVOIDED = frozenset({Kind.UNMAPPED, Kind.OTHER_NODES, Kind.NOT_IN_GRAPH})
"""A job that got storage on such a Rabbit could not run."""


@dataclass(frozen=True)
class Disagreement:
    """Something about a Rabbit on which mapping, graph and cluster do not agree.

    Attributes:
        template: the sentence about it, with :data:`RABBITS` in the place of its name.
    """

    kind: Kind
    rabbit: str
    template: str

    @property
    def sentence(self) -> str:
        return self.template.replace(RABBITS, self.rabbit)

    @property
    def is_avoided(self) -> bool:
        """Whether no job is to get storage on the Rabbit."""
        return self.kind in AVOIDED


def compare(
    mapping: RabbitMapping,
    graph: Mapping[str, GraphRabbit],
    cluster: Mapping[str, Sizes],
    files: Files = Files(),
) -> tuple[Disagreement, ...]:
    """All on which mapping, graph and cluster do not agree, by Rabbit.

    Args:
        graph: the Rabbits of the resource graph; none if the scheduler gives no
            storage, or has no graph with Rabbits: then only the others are compared.
        cluster: the Rabbits of the cluster. All of them must have been seen.
    """
    names = sorted({*mapping.rabbits, *graph, *cluster}, key=hostlist.natural_key)
    return tuple(
        Disagreement(kind, name, template)
        for name in names
        for kind, template in _about(name, mapping, graph, cluster, files)
    )


def lines(disagreements: Iterable[Disagreement]) -> Iterator[str]:
    """A line of the log for each sentence, with the Rabbits that it is about."""
    about: dict[str, list[str]] = {}
    for each in disagreements:
        about.setdefault(each.template, []).append(each.rabbit)
    for template, names in about.items():
        yield template.replace(RABBITS, hostlist.encode(names))


_Found = Iterator[tuple[Kind, str]]


def _about(
    name: str,
    mapping: RabbitMapping,
    graph: Mapping[str, GraphRabbit],
    cluster: Mapping[str, Sizes],
    files: Files,
) -> _Found:
    vertex, sizes = graph.get(name), cluster.get(name)
    if not mapping.has(name) and vertex is not None:
        yield (
            Kind.UNMAPPED,
            f"{files.mapping} lacks {RABBITS}, which {files.graph} has: no job gets"
            " storage there until both agree (flux rabbitmapping, flux dws2jgf)",
        )
    elif not mapping.has(name):  # another instance may have it
        yield (
            Kind.UNUSED,
            f"rabbit.mapping lacks {RABBITS}: no job gets storage there; "
            "flux rabbitmapping writes a new one",
        )
    else:
        if vertex is not None:
            yield from _about_vertex(name, mapping, vertex, files)
        elif graph:
            yield (
                Kind.NOT_IN_GRAPH,
                f"{files.graph} lacks {RABBITS}, which {files.mapping} has: no job gets"
                " storage there; flux dws2jgf writes a new one",
            )
        if sizes is not None:
            yield from _about_sizes(mapping.size(name), sizes, files)
        else:
            text = f"the cluster lacks {RABBITS}, which {files.mapping} has"
            yield Kind.NOT_IN_CLUSTER, text


def _about_vertex(
    name: str, mapping: RabbitMapping, vertex: GraphRabbit, files: Files
) -> _Found:
    if vertex.nodes is not None:
        others = vertex.nodes.difference(mapping.hosts_of(name))
        if others:
            hosts = hostlist.encode_sorted(others)
            yield (
                Kind.OTHER_NODES,
                f"{files.graph} has {hosts} below {RABBITS}, and {files.mapping} does"
                " not: no job gets storage there until both agree (flux rabbitmapping,"
                " flux dws2jgf)",
            )
    gib = mapping.capacity(name) // GIB
    if vertex.ssds and vertex.ssd_size and gib:
        size = gib // vertex.ssds  # as flux dws2jgf cuts a Rabbit
        if size != vertex.ssd_size:
            yield (
                Kind.OTHER_SSDS,
                f"{files.graph} has {vertex.ssds} ssd of {vertex.ssd_size} GiB on"
                f" {RABBITS}, by {files.mapping} they have {size} GiB: jobs get too"
                " much or too little there; flux dws2jgf writes a new one",
            )


def _about_sizes(size: int, sizes: Sizes, files: Files) -> _Found:
    """Only what is certain, in whole GiB: sizes are rounded on the way."""
    gib = size // GIB
    if sizes.drives is not None and gib > -(-sizes.drives // GIB):
        yield (
            Kind.TOO_LARGE,
            f"{files.mapping} has {gib} GiB on {RABBITS}, whose drives have"
            f" {sizes.drives // GIB} GiB: jobs get nodes, and then not their storage;"
            " flux rabbitmapping writes a new one",
        )
    elif size and sizes.free // GIB > -(-size // GIB):
        yield (
            Kind.TOO_SMALL,
            f"{files.mapping} has {gib} GiB on {RABBITS}, where {sizes.free // GIB} GiB"
            " are free: jobs that would fit are refused; flux rabbitmapping writes a"
            " new one",
        )
