# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The Rabbits of a job's storage: breakdowns and an allocation become Servers.

The number of allocations that AllocateAcrossServers makes:

- with ``count``: this count.
- with ``scale``: a multiple of the smallest number that divides among the Rabbits as
  the job's nodes do, and that therefore fits into the job's shares. With 16 and 8 nodes
  below two Rabbits these get 2 allocations and 1, or 4 and 2... 1 is the smallest of
  these multiples. 10 is the largest: one allocation for each compute node, or fewer
  where they would be smaller than 1 GiB.
- with neither: as with a ``scale`` of 1.

If that does not fit into the job's shares beside its other sets, all sets make one
allocation for each compute node. If that does not fit either (a single allocation, such
as a Lustre MDT, may be larger than the job's share of any Rabbit), Rabbits take more
than the job's share there, of the room that the scheduler gave to no other job.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import reduce
from typing import Mapping, NamedTuple, Sequence

from flux_k8s.errors import AllocationError
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.hostlist import natural_key
from flux_k8s.ports import Json
from flux_k8s.reasons import Reason
from flux_k8s.rules.directivebreakdown.allocation import Allocation, Room
from flux_k8s.rules.directivebreakdown.breakdown import AllocationSet, Breakdown, Place


class Placement(NamedTuple):
    """The allocations of a set: the bytes of each, and their count on each Rabbit."""

    size: int
    counts: dict[str, int]


class Demand(NamedTuple):
    """An allocation set and its breakdown.

    ``pcie``: whether compute nodes must have a PCIe connection to the allocations.
    """

    breakdown: Breakdown
    entry: AllocationSet
    pcie: bool

    @property
    def name(self) -> str:
        """The set as errors call it."""
        return f"{self.breakdown.name}: allocation set {self.entry.label}"

    @property
    def freedom(self) -> tuple[Place, bool, bool]:
        """The order in which sets are placed: those that leave the least choice come
        first."""
        entry = self.entry
        return entry.strategy.place, not entry.colocation, entry.number is None

    def excludes(self, other: Demand) -> bool:
        """Whether no Rabbit may have allocations of both sets."""
        return not set(self.entry.colocation).isdisjoint(other.entry.colocation)


def build_servers(
    breakdowns: Sequence[Breakdown], allocation: Allocation
) -> list[list[Json]]:
    """``spec.allocationSets`` of the Servers of each of a job's breakdowns.

    - Every compute node gets its AllocatePerCompute on its own Rabbit.
    - All allocations of a set have the same size. Those of a set that is
      shared among Rabbits add up to at least its minimum capacity, and their
      numbers follow the job's nodes on each Rabbit.
    - No Rabbit gets more than the job's share there, if there is a choice. No Rabbit
      gets more than it has room for.
    - Allocations go only to Storages that carry all labels of their set. A
      Storage takes at most one allocation for each colocation key.

    Raises:
        AllocationError: the job has no nodes, a node has no Rabbit that can serve it,
            a set may use too few Rabbits, or a Rabbit has too little room left.
    """
    if not allocation.hosts:
        raise AllocationError("the job has no compute nodes to make storage for")
    demands = [
        Demand(breakdown, entry, breakdown.needs_pcie(index))
        for breakdown in breakdowns
        for index, entry in enumerate(breakdown.allocation_sets)
    ]
    placements, room = _place_all(demands, allocation, by_node=False)
    if any(room.shortage):
        # With an allocation for each node, every set takes the same part of the share
        # that came with each node. That fits when nothing else does.
        other, other_room = _place_all(demands, allocation, by_node=True)
        if other_room.shortage < room.shortage:
            placements, room = other, other_room
    room.check()
    entries = iter([_entry(*pair) for pair in zip(demands, placements)])
    return [[next(entries) for _ in b.allocation_sets] for b in breakdowns]


def _entry(demand: Demand, placement: Placement) -> Json:
    return {
        "label": demand.entry.label,
        "allocationSize": placement.size,
        "storage": [
            {"name": rabbit, "allocationCount": placement.counts[rabbit]}
            for rabbit in sorted(placement.counts, key=natural_key)
        ],
    }


def _place_all(
    demands: Sequence[Demand], allocation: Allocation, by_node: bool
) -> tuple[list[Placement], Room]:
    """Place all sets. Return the placements, and the room that is left."""
    room = Room(allocation)
    placements: dict[int, Placement] = {}
    alike = Counter(demand.freedom for demand in demands)

    def choice(index: int) -> tuple[object, int, int]:
        demand = demands[index]
        usable = 0
        if alike[demand.freedom] > 1:
            problems = (room.problem(r, demand.entry) for r in allocation.rabbits)
            usable = sum(problem is None for problem in problems)
        return (demand.freedom, usable, index)

    order = sorted(range(len(demands)), key=choice)
    for place, index in enumerate(order, 1):
        later = [demands[other] for other in order[place:]]
        others = sum(demands[index].excludes(other) for other in later)
        placement = _place(demands[index], allocation, room, by_node, others)
        room.take(placement.size, placement.counts, demands[index].entry.colocation)
        placements[index] = placement
    return [placements[index] for index in range(len(demands))], room


def _place(
    demand: Demand, allocation: Allocation, room: Room, by_node: bool, others: int
) -> Placement:
    """Place a set. ``others`` is the number of sets still to be placed that each need a
    Rabbit without it."""
    entry = demand.entry
    place = entry.strategy.place
    if place is Place.OWN_RABBIT:
        counts = _one_per_node(demand, allocation, room)
        return Placement(entry.minimum_capacity, counts)
    rabbits = _candidates(demand, allocation, room)
    if place is Place.EACH_RABBIT:
        return Placement(entry.minimum_capacity, dict.fromkeys(rabbits, 1))
    most = 1 if entry.colocation else None
    number = entry.number or _number(demand, rabbits, allocation, by_node, others)
    size = -(-entry.minimum_capacity // number)
    weights = {rabbit: allocation.nodes_per_rabbit.get(rabbit, 0) for rabbit in rabbits}
    # A set that nodes must reach gets an allocation on each of their Rabbits, if it has
    # enough.
    counts = dict.fromkeys(rabbits, 0)
    if demand.pcie and number >= len(rabbits):
        counts = {rabbit: int(weights[rabbit] > 0) for rabbit in rabbits}
        total = sum(weights.values())
        weights = {r: max(0, number * weight - total) for r, weight in weights.items()}
    room.distribute(number, size, weights, most, counts)
    return Placement(size, {rabbit: n for rabbit, n in counts.items() if n > 0})


def _one_per_node(demand: Demand, allocation: Allocation, room: Room) -> dict[str, int]:
    """The number of allocations of an AllocatePerCompute set on each Rabbit, which
    leaves no choice."""
    if allocation.unconnected:
        raise AllocationError(
            f"{demand.name}: node {allocation.unconnected[0]} has no Rabbit,"
            " and each compute node needs an allocation on its own",
            Reason.MAPPING_DISAGREES,
        )
    counts = {rabbit: n for rabbit, n in allocation.nodes_per_rabbit.items() if n > 0}
    _check_needed(demand, counts, room)
    return counts


def _check_needed(demand: Demand, nodes: Mapping[str, int], room: Room) -> None:
    """Check that the Rabbits which a set needs can take it. ``nodes`` has the number of
    nodes that need each Rabbit."""
    for rabbit in sorted(nodes, key=natural_key):
        problem = room.problem(rabbit, demand.entry) if nodes[rabbit] else None
        own = demand.entry.strategy.own
        if problem is None and own and demand.entry.colocation and nodes[rabbit] > 1:
            problem = f"may take one allocation, not {nodes[rabbit]}"
        if problem is not None:
            raise AllocationError(
                f"{demand.name}: Rabbit {rabbit}, which {nodes[rabbit]} of the"
                f" job's nodes need, {problem}",
                Reason.NO_ROOM,
            )


def _candidates(demand: Demand, allocation: Allocation, room: Room) -> list[str]:
    """The Rabbits that a set may use: the job's own, if there are enough."""
    if demand.pcie:
        _check_needed(demand, allocation.nodes_per_rabbit, room)
    needed = (demand.entry.number or 1) if demand.entry.colocation else 1
    problems = {r: room.problem(r, demand.entry) for r in allocation.rabbits}
    usable = [rabbit for rabbit, problem in problems.items() if problem is None]
    if len(usable) >= needed:
        return usable
    if not demand.pcie and demand.entry.strategy.place is Place.ANY_RABBIT:
        spares = room.roomiest(allocation.spares, demand.entry)
        most = demand.entry.number or len(allocation.hosts)
        usable += spares[: max(0, most - len(usable))]
    if len(usable) >= needed:
        return usable
    reasons = [f"{rabbit} {problem}" for rabbit, problem in problems.items() if problem]
    raise AllocationError(
        f"{demand.name} needs {needed} Rabbit{'' if needed == 1 else 's'},"
        f" the job has {len(usable)} that may be used"
        + (f": {'; '.join(reasons[:3])}" if reasons else "")
        + ("; ..." if len(reasons) > 3 else ""),
        Reason.NO_ROOM,
    )


def _number(
    demand: Demand,
    rabbits: Sequence[str],
    allocation: Allocation,
    by_node: bool,
    others: int,
) -> int:
    """The number of allocations where the breakdown does not give it."""
    entry = demand.entry
    most = len(allocation.hosts)
    if entry.colocation:
        most = min(most, max(1, len(rabbits) - others))
    if by_node:
        return most
    step = _proportional([allocation.nodes_per_rabbit.get(r, 0) for r in rabbits])
    largest = max(1, min(most, entry.minimum_capacity // GIB))
    steps = max(1, largest // step)
    scale = entry.scale or 1
    wanted = step * (1 + ((steps - 1) * (scale - 1) * 2 + 9) // 18)
    least = len(rabbits) if demand.pcie and len(rabbits) <= most else 1
    return max(least, min(largest, wanted))


def _proportional(nodes: Sequence[int]) -> int:
    """The smallest number of allocations that divides exactly as ``nodes`` do."""
    divisor = reduce(math.gcd, nodes, 0)
    return sum(nodes) // divisor if divisor else 1
