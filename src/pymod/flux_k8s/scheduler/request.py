# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What a jobspec asks the scheduler for (RFC 14 and 25).

Guests write jobspecs. Each is read once into a list of groups, and refused if it is not
understood, or so large that other jobs would wait while it is read. A request for an
unknown resource is refused too: no node will ever have it.

As with Fluxion, the contents of a slot are the job's alone, so that a node in a slot is
the job's as a whole; and the nodes and ``ssd`` of one slot are below one chassis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Optional

from flux_k8s.errors import BadObject
from flux_k8s.formats import constraints, count
from flux_k8s.formats.constraints import Constraint
from flux_k8s.formats.count import Count
from flux_k8s.formats.jgf import CHASSIS, NODE, SSD
from flux_k8s.json_reader import Reader, check_extent

NAME = "jobspec"
"""The name of a jobspec in errors."""

MAX_GROUPS = 2
"""More groups than this in one request are taken for a mistake: each takes time."""

MAX_DEPTH = 32
"""More levels of resources than this in a request are taken for a mistake."""

MAX_COUNT = 2**31 - 1
"""Cores, GPUs, nodes or GiB that a request may have for one thing."""

SLOT, CORE, GPU = "slot", "core", "gpu"
ONE = Count.fixed(1)


class Need(NamedTuple):
    """What a job needs of a node, or for a slot.

    Attributes:
        exclusive: the node as a whole.
    """

    cores: int = 0
    gpus: int = 0
    exclusive: bool = False

    def plus(self, other: Need, times: int = 1) -> Need:
        return Need(self.cores + other.cores * times, self.gpus + other.gpus * times)


@dataclass(frozen=True)
class Group:
    """Resources that are given together.

    Attributes:
        count: how many times.
        nodes: how many nodes each time; 0: a slot, of which a node may have several.
        need: of each node, or for the slot.
        ssd: GiB of storage each time.
        below_one: all of it is below one chassis. Without that, storage may come from
            any.
        slots: the slots for tasks each time: those with no slot in them, but for slots
            of storage.
    """

    count: Count
    nodes: int
    need: Need = Need()
    ssd: int = 0
    below_one: bool = False
    slots: int = 0


@dataclass(frozen=True)
class Place:
    """A group, and where it is to be.

    Attributes:
        chassis: below each of so many chassis; None: anywhere, once.
        exclusive: of each chassis the job has all that is below it.
    """

    chassis: Optional[Count]
    group: Group
    exclusive: bool = False

    @property
    def least(self) -> Place:
        """The same without more than its counts accept at least."""
        group = replace(self.group, count=Count.fixed(self.group.count.least))
        chassis = self.chassis and Count.fixed(self.chassis.least)
        return replace(self, chassis=chassis, group=group)


@dataclass(frozen=True)
class Request:
    """A valid request.

    Attributes:
        duration: seconds; 0 for no limit.
    """

    places: tuple[Place, ...]
    constraint: Constraint
    duration: float


def parse(jobspec: Any) -> Request:
    """Read a jobspec.

    Raises:
        BadObject: it is not as RFC 25 says, asks for resources of an unknown type, or
            for such in a place where they cannot be, or is too large.
    """
    reader = Reader(NAME, jobspec)
    check_extent(NAME, "resources", reader.value.get("resources"))
    vertices = reader.objects("resources")
    if not vertices:
        raise reader.bad("resources", "at least one resource")
    if len(vertices) > MAX_GROUPS:
        raise reader.bad("resources", f"at most {MAX_GROUPS} groups of resources")
    places = tuple(map(_place, vertices))
    system = reader.optional_object("attributes.system")
    found = {} if system is None else system.value.get("constraints")
    constraint = constraints.parse_of_job(found)
    duration = None if system is None else system.optional_number("duration", 0.0)
    return Request(places, constraint, duration or 0.0)


def check_has_nodes(request: Request) -> None:
    """Refuse a request for storage only: R would have no node. No job of the instance
    starts after one with such an R, since job-exec ends (flux-core 0.88).

    Raises:
        BadObject: it asks for no core and no node.
    """
    if not any(place.group.nodes or place.group.need.cores for place in request.places):
        raise BadObject(
            NAME, "resources", f"{SSD} only", f"a {CORE} or a {NODE} as well"
        )


def _place(vertex: Reader) -> Place:
    if vertex.string("type") != CHASSIS:
        return Place(None, _group(vertex, 0))
    below = vertex.optional_objects("with")
    if len(below) != 1:
        raise vertex.bad("with", "one resource, which may be a slot with several")
    group = replace(_group(below[0], 1), below_one=True)
    exclusive = vertex.optional_boolean("exclusive") or False
    return Place(count.parse(vertex), group, exclusive)


def _group(vertex: Reader, depth: int) -> Group:
    type = vertex.string("type")
    if type == NODE:
        need = _node_need(vertex, depth)
        return Group(count.parse(vertex), 1, need, slots=_task_slots_below(vertex))
    if type == SSD:
        return Group(ONE, 0, ssd=_least(vertex))
    if type != SLOT:
        raise vertex.bad("type", f"one of {CHASSIS}, {NODE}, {SLOT} and {SSD}")
    children = vertex.objects("with")
    nodes = [child for child in children if child.string("type") == NODE]
    ssd = sum(_least(child) for child in children if child.string("type") == SSD)
    if not nodes:
        rest = tuple(child for child in children if child.string("type") != SSD)
        need = _needs(vertex, rest, depth + 1)
        if not need.cores and (need.gpus or not ssd):
            raise vertex.bad("with", "a core in each slot")
        slots = (_task_slots_below(vertex) or 1) if need.cores else 0
        if vertex.optional_boolean("exclusive"):
            need = need._replace(exclusive=True)
            return Group(count.parse(vertex), 1, need, ssd, bool(ssd), slots or 1)
        return Group(count.parse(vertex), 0, need, ssd, bool(ssd), slots)
    if len(nodes) > 1 or len(nodes) + (ssd > 0) < len(children):
        raise vertex.bad("with", f"a {NODE} and {SSD} at most, beside a {NODE}")
    need = _node_need(nodes[0], depth + 1)._replace(exclusive=True)
    number = _least(nodes[0])
    slots = _task_slots_below(nodes[0]) * number or 1
    return Group(count.parse(vertex), number, need, ssd, bool(ssd), slots)


def _node_need(node: Reader, depth: int) -> Need:
    need = _needs(node, node.optional_objects("with"), depth + 1)
    exclusive = node.optional_boolean("exclusive") or False
    if not need.cores and not exclusive:
        raise node.bad("with", "a core at least, unless the node is exclusive")
    return need._replace(exclusive=exclusive)


def _needs(above: Reader, vertices: tuple[Reader, ...], depth: int) -> Need:
    """The sum of what is in a node or a slot."""
    if depth > MAX_DEPTH:
        raise above.bad("type", f"at most {MAX_DEPTH} levels of resources")
    need = Need()
    for vertex in vertices:
        type = vertex.string("type")
        if type == SLOT:
            inner = _needs(vertex, vertex.objects("with"), depth + 1)
            need = need.plus(inner, _least(vertex))
        elif type == CORE:
            need = need.plus(Need(cores=_least(vertex)))
        elif type == GPU:
            need = need.plus(Need(gpus=_least(vertex, 0)))
        else:
            raise vertex.bad("type", f"one of {SLOT}, {CORE} and {GPU}")
        if max(need.cores, need.gpus) > MAX_COUNT:
            raise vertex.bad("count", f"at most {MAX_COUNT} on each node")
    return need


def _task_slots_below(vertex: Reader) -> int:
    """The slots in a node or a slot that have no slot in them. Its depth is checked."""
    found = 0
    for child in vertex.optional_objects("with"):
        inner = _task_slots_below(child)
        if inner or child.string("type") == SLOT:
            found += _least(child) * (inner or 1)
    return found


def _least(vertex: Reader, minimum: int = 1) -> int:
    """The least number that a vertex's ``count`` accepts."""
    if not minimum and vertex.value.get("count") == 0:
        return 0  # Flux allows that for GPUs
    least = count.parse(vertex).least
    if least > MAX_COUNT:
        raise vertex.bad("count", f"at most {MAX_COUNT}")
    return least
