# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The resources of a jobspec, with the storage of the job's directives added.

Seed 001, "Proposal": each node that the job asks for becomes a slot labelled
``rabbit`` that holds the node and so many ``ssd`` (1 GiB each), and the
scheduler takes both from the same chassis.

A job may ask for the node of a Rabbit itself (``storage_node``) beside its nodes.
Fluxion takes no slot beside other resources, and flux-shell no slot around a
``storage_node``: there the ``ssd`` stand beside both, with the label ``rabbit``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Iterable, Mapping, Optional, Sequence

from flux_k8s.errors import AllocationError, BadObject
from flux_k8s.formats.count import parse as parse_count
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jgf import CHASSIS, NODE, SSD, STORAGE_NODE
from flux_k8s.json_reader import Reader, is_integer
from flux_k8s.limits import NODES
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.breakdown import Breakdown

Resources = Sequence[Mapping[str, Any]]
"""``resources`` of a jobspec (RFC 14, 25)."""

JOBSPEC = "jobspec"
"""The object that has them, in errors."""

SLOT_LABEL = "rabbit"
"""The label of a vertex that was added for the job's storage."""

NO_NODES = (
    "Rabbit storage needs whole nodes, and the job asks for none:"
    " add -N (--nodes) to the request"
)
"""Why a job without whole nodes gets no storage."""

MAX_RESOURCE_DEPTH = 32
"""More levels of resources than this in a request are taken for a mistake."""


def apply_breakdowns(
    breakdowns: Iterable[Breakdown], resources: Resources, name: str = JOBSPEC
) -> list[Json]:
    """The jobspec's ``resources`` with the storage that ``breakdowns`` ask for.

    ``resources`` must have exactly one ``node`` vertex, at the top or below vertices
    that are no slots (``chassis``, ``rack``). Storage that an earlier call added is
    replaced: to apply the same breakdowns twice changes nothing. The function does not
    change its arguments.

    Args:
        breakdowns: of all directives of the job, ``create_persistent``
            included: the Rabbits that the job gets must have room for it.
        resources: as in RFC 14 and 25.
        name: the name by which errors call the object that has ``resources``.

    Raises:
        AllocationError: storage was asked for, but no whole nodes.
        BadObject: ``resources`` is not as RFC 14 says.
    """
    bare = _without_any_storage(resources, name)
    breakdowns = tuple(breakdowns)
    if not any(breakdown.allocation_sets for breakdown in breakdowns):
        return [reader.value for reader in bare]
    for reader in bare:
        _refuse_slot_around_node(reader)
        if reader.string("type") == STORAGE_NODE:
            raise reader.bad("type", f"a {STORAGE_NODE} below a {CHASSIS}, with nodes")
    nodes = [found for reader in bare for found in _nodes(reader)]
    if not nodes:
        raise AllocationError(NO_NODES)
    if len(nodes) > 1:
        raise BadObject(name, "resources", resources, "a single node vertex")
    ssd = gib_per_node(breakdowns, nodes[0])
    return [_with_storage(reader, ssd) for reader in bare]


def requested_nodes(resources: Resources) -> int:
    """The least number of nodes that a jobspec's ``resources`` ask for; 0 for
    a request without whole nodes.

    Raises:
        BadObject: ``resources`` is not as RFC 14 says.
    """
    return sum(
        found for reader in _without_any_storage(resources) for found in _nodes(reader)
    )


def asks_for_rabbits(resources: Resources) -> bool:
    """Whether a jobspec's ``resources`` ask for nodes of Rabbits (``storage_node``).

    Raises:
        BadObject: as :func:`requested_nodes`.
    """

    def at_or_below(vertex: Reader) -> bool:
        children = vertex.optional_objects("with")
        return vertex.string("type") == STORAGE_NODE or any(map(at_or_below, children))

    return any(map(at_or_below, _without_any_storage(resources)))


def requested_chassis(resources: Resources) -> Optional[int]:
    """The number of chassis below which ``resources`` ask for the same number of whole
    nodes; 0 if these may be anywhere. None for any other request.

    Raises:
        BadObject: as :func:`requested_nodes`.
    """
    found: Sequence[Reader] = _without_any_storage(resources)
    chassis = 0
    if len(found) == 1 and found[0].string("type") == CHASSIS:
        if not is_integer(found[0].value.get("count")):
            return None
        if found[0].optional_boolean("exclusive"):
            return None  # it comes with all nodes below it
        chassis = found[0].integer("count", minimum=1)
        found = found[0].optional_objects("with")
    fixed = len(found) == 1 and found[0].string("type") == NODE
    return chassis if fixed and is_integer(found[0].value.get("count")) else None


def requested_per_node(resources: Resources) -> Counter[str]:
    """The least number of resources of each type (``core``, ``gpu``, and what is around
    them) that ``resources`` ask for on each node.

    Raises:
        BadObject: as :func:`requested_nodes`.
    """
    found: Counter[str] = Counter()
    for reader in _without_any_storage(resources):
        _count_in_node(reader, 0, found)
    return found


def _count_in_node(vertex: Reader, above: int, found: Counter[str]) -> None:
    """Count what is at or below a vertex in a node. ``above`` is the product of the
    counts of the vertices around it in the node; 0 outside of one."""
    type, count = vertex.string("type"), above * parse_count(vertex).least
    if above:
        found[type] += count
    for child in vertex.optional_objects("with"):
        _count_in_node(child, 1 if type == NODE else count, found)


def below_chassis(resources: Resources, chassis: int) -> list[Json]:
    """The same request for nodes, which may be anywhere, for as many of them below each
    of so many chassis."""
    (node,) = resources
    each = {**node, "count": node["count"] // chassis}
    return [{"type": CHASSIS, "count": chassis, "with": [each]}]


def gib_per_node(breakdowns: Iterable[Breakdown], nodes: int) -> int:
    """The GiB of ``ssd`` that go with each of a job's ``nodes`` nodes.

    An allocation per compute node counts in full, and so does one per server: each
    node may be the only one of the job below its Rabbit. Capacity that may go anywhere
    is divided among the nodes. The sum of all bytes is rounded up to GiB, so all nodes
    together have at least the capacity of the directives.
    """
    share = 0
    for breakdown in breakdowns:
        for entry in breakdown.allocation_sets:
            if entry.strategy.each:
                share += entry.minimum_capacity
            else:
                share += -(-entry.minimum_capacity // nodes)
    return -(-share // GIB)


def share_of_node(
    breakdowns: Iterable[Breakdown], nodes: int, scheduler: bool = True
) -> int:
    """The bytes that each of a job's nodes must have on its own Rabbit.

    Args:
        scheduler: the scheduler takes the storage of a node from its Rabbit, wherever
            DWS would let it be.
    """
    breakdowns = tuple(breakdowns)
    if scheduler:
        return gib_per_node(breakdowns, nodes) * GIB if nodes else 0
    return sum(
        entry.minimum_capacity
        for breakdown in breakdowns
        for entry in breakdown.allocation_sets
        if entry.strategy.own
    )


def _nodes(vertex: Reader, above: int = 1) -> list[int]:
    """The least total count of each ``node`` vertex at or below ``vertex``. ``above``
    is the product of the counts of the vertices above it."""
    count = parse_count(vertex).least
    type = vertex.string("type")
    if type == NODE:
        if above * count > NODES:
            raise vertex.bad("count", f"a request for at most {NODES} nodes")
        return [above * count]
    return [
        found
        for child in vertex.optional_objects("with")
        for found in _nodes(child, above * count)
    ]


def _refuse_slot_around_node(vertex: Reader) -> None:
    type = vertex.string("type")
    if type == "slot" and _nodes(vertex):
        raise vertex.bad("type", "no slot around a node, for a job with storage")
    if type != NODE:
        for child in vertex.optional_objects("with"):
            _refuse_slot_around_node(child)


def _with_storage(vertex: Reader, ssd: int) -> Json:
    """The vertex, with the ``node`` at or below it turned into a slot."""
    if vertex.string("type") == NODE:
        return {
            "type": "slot",
            "count": vertex.value["count"],
            "label": SLOT_LABEL,
            "with": [
                {**vertex.value, "count": 1},
                {"type": SSD, "count": ssd, "exclusive": True},
            ],
        }
    if not vertex.has("with"):
        return dict(vertex.value)
    below = vertex.objects("with")
    if any(child.string("type") == STORAGE_NODE for child in below):
        children = [added for child in below for added in _beside_rabbit(child, ssd)]
    else:
        children = [_with_storage(child, ssd) for child in below]
    return {**vertex.value, "with": children}


def _beside_rabbit(vertex: Reader, ssd: int) -> list[Json]:
    """A vertex beside a ``storage_node``, and the storage of the nodes if it is one."""
    if vertex.string("type") != NODE:
        return [_with_storage(vertex, ssd)]
    count = ssd * vertex.integer("count", minimum=1)
    storage = {"type": SSD, "count": count, "exclusive": True, "label": SLOT_LABEL}
    return [dict(vertex.value), storage]


def _without_any_storage(resources: Resources, name: str = JOBSPEC) -> list[Reader]:
    """The top-level vertices as they were before :func:`apply_breakdowns`."""
    entries = Reader(name, {"resources": resources}).objects("resources")
    return [Reader(name, _without_storage(entry), entry.path) for entry in entries]


def _without_storage(vertex: Reader) -> Json:
    """The vertex as it was before :func:`_with_storage`."""
    if vertex.path.count(".with[") > MAX_RESOURCE_DEPTH:
        raise vertex.bad("type", f"at most {MAX_RESOURCE_DEPTH} levels of resources")
    children = vertex.optional_objects("with")
    types = [child.string("type") for child in children]
    if (
        vertex.value.get("label") == SLOT_LABEL
        and types == [NODE, SSD]
        and children[0].value.get("count") == 1
    ):
        return {**children[0].value, "count": vertex.value.get("count")}
    if not children:
        return dict(vertex.value)
    left = [child for child in children if not _is_added(child)]
    return {**vertex.value, "with": [_without_storage(child) for child in left]}


def _is_added(vertex: Reader) -> bool:
    """Whether :func:`_beside_rabbit` has added this vertex."""
    return (vertex.value.get("type"), vertex.value.get("label")) == (SSD, SLOT_LABEL)
