# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What is free of an instance's nodes and storage, and what a request gets of it.

The nodes are numbered by rank, the Rabbits as in the mapping, and sets of them, of
cores and of ``ssd`` are the bits of integers (:mod:`flux_k8s.formats.bits`). The nodes
with equally many free cores and GPUs are one set. So an attempt to place a request
costs some operations on integers for each Rabbit, however many nodes there are.

The first nodes that fit are taken, but of ``ssd`` the last ones, as Fluxion's match
policy ``first`` does. A request of one group is placed whenever that is possible. So is
one of two groups of whole nodes, wherever these are: each first takes nodes that the
other has no use for. For any two groups, some orders are tried (:func:`_attempts`), not
all ways to place them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain, islice
from typing import Iterable, Mapping, NamedTuple, Optional, Sequence

from flux_k8s.formats import bits
from flux_k8s.scheduler.request import Group, Need, Place, Request


@dataclass(frozen=True)
class Chassis:
    """A Rabbit.

    Attributes:
        ssds: how many ``ssd`` it has, of ``ssd_size`` GiB each. A job gets an ``ssd``
            as a whole.
        nodes: the set of the nodes below it.
    """

    rabbit: str
    ssds: int
    ssd_size: int
    nodes: int

    @cached_property
    def first(self) -> int:
        """The lowest number of the nodes below it."""
        return next(bits.numbers(self.nodes), 0)

    def ssds_for(self, gib: int) -> int:
        return -(-gib // self.ssd_size)


class Taken(NamedTuple):
    """The sets of cores and GPUs that a job has of a node."""

    cores: int
    gpus: int


@dataclass
class Grant:
    """The resources of a job.

    Attributes:
        nodes: by number.
        ssds: the set of ``ssd`` of each chassis, by the number of the chassis.
        slots: the number of slots for tasks.
    """

    nodes: dict[int, Taken] = field(default_factory=dict)
    ssds: dict[int, int] = field(default_factory=dict)
    slots: int = 0


class Misfit(Exception):
    """A request does not fit.

    Attributes:
        place: the part that does not.
        most: how often it would fit; or, in a place below several chassis, below how
            many of these.
    """

    def __init__(self, place: Place, most: int) -> None:
        super().__init__()
        self.place = place
        self.most = most


class Free:
    """What is free.

    Args:
        nodes: the cores and GPUs of each node.
    """

    def __init__(self, nodes: Sequence[Taken], chassis: Sequence[Chassis]) -> None:
        self._total = nodes
        self._chassis = chassis
        self._nodes = list(nodes)
        self._by_size: dict[tuple[int, int], int] = {}
        by_size: dict[Taken, list[int]] = {}
        for number, node in enumerate(nodes):
            by_size.setdefault(node, []).append(number)
        for node, members in by_size.items():
            self._classify(bits.mask(members), node)
        self._present = self._idle = (1 << len(nodes)) - 1
        self._ssds = [(1 << each.ssds) - 1 for each in chassis]

    def copy(self) -> Free:
        other = Free.__new__(Free)
        other._total, other._chassis = self._total, self._chassis
        other._present, other._idle = self._present, self._idle
        other._nodes, other._by_size = list(self._nodes), dict(self._by_size)
        other._ssds = list(self._ssds)
        return other

    def remove(self, nodes: int) -> None:
        """These nodes are no longer part of the instance."""
        self._present &= ~nodes

    def is_idle(self, nodes: int) -> bool:
        """Whether no job has anything of these nodes."""
        return not nodes & ~self._idle

    def below(self, chassis: int) -> int:
        """The set of nodes below a chassis that were not removed."""
        return self._chassis[chassis].nodes & self._present

    def of_node(self, number: int) -> Taken:
        """The free cores and GPUs of a node."""
        return self._nodes[number]

    def ssds(self, chassis: int) -> int:
        """The free ``ssd`` of a chassis."""
        return self._ssds[chassis]

    def take(self, wanted: Mapping[int, Taken]) -> dict[int, Taken]:
        """Take cores and GPUs of nodes, as far as they are free."""
        taken, left = {}, {}
        for number, (cores, gpus) in wanted.items():
            free = self._nodes[number]
            taken[number] = Taken(cores & free.cores, gpus & free.gpus)
            left[number] = Taken(free.cores & ~cores, free.gpus & ~gpus)
        self._change(left)
        return taken

    def take_ssds(self, chassis: int, wanted: int) -> None:
        self._ssds[chassis] &= ~wanted

    def give(self, grants: Iterable[Grant]) -> None:
        """Take back what jobs had."""
        nodes: dict[int, Taken] = {}
        for grant in grants:
            for number, (cores, gpus) in grant.nodes.items():
                free = nodes.get(number) or self._nodes[number]
                nodes[number] = Taken(free.cores | cores, free.gpus | gpus)
            for chassis, ssds in grant.ssds.items():
                self._ssds[chassis] |= ssds
        self._change(nodes)

    def _change(self, nodes: Mapping[int, Taken]) -> None:
        """These are free now of these nodes."""
        before: dict[Taken, list[int]] = {}
        after: dict[Taken, list[int]] = {}
        idle = []
        for number, node in nodes.items():
            before.setdefault(self._nodes[number], []).append(number)
            after.setdefault(node, []).append(number)
            if node == self._total[number]:
                idle.append(number)
            self._nodes[number] = node
        for node, members in before.items():
            sizes = _sizes(node)
            self._by_size[sizes] &= ~bits.mask(members)
            if not self._by_size[sizes]:
                del self._by_size[sizes]
        for node, members in after.items():
            self._classify(bits.mask(members), node)
        self._idle = self._idle & ~bits.mask(nodes) | bits.mask(idle)

    def _classify(self, members: int, node: Taken) -> None:
        sizes = _sizes(node)
        self._by_size[sizes] = self._by_size.get(sizes, 0) | members

    def fitting(self, need: Need) -> int:
        """The set of nodes that have free what is needed."""
        found = 0
        for (cores, gpus), members in self._by_size.items():
            if cores >= need.cores and gpus >= need.gpus:
                found |= members
        return found & self._idle if need.exclusive else found

    def place(self, request: Request, nodes: int, ssds_down: Sequence[int]) -> Grant:
        """Take what a request asks for. After an error part of it may be taken: try on
        a copy.

        Args:
            nodes: the set of nodes that it may get.
            ssds_down: the set of ``ssd`` of each chassis that nobody gets.

        Raises:
            Misfit: it does not fit.
        """
        places: Sequence[Place] = request.places
        if len(places) > 1:
            places = self._attempt_that_fits(request, nodes, ssds_down)
        placing = _Placing(self, self._chassis, nodes, ssds_down)
        placing.place_all(places)
        return placing.grant

    def check(self, request: Request, nodes: int, ssds_down: Sequence[int]) -> None:
        """As :meth:`place`, to find out whether it fits: nothing is taken."""
        self._attempt_that_fits(request, nodes, ssds_down)

    def _attempt_that_fits(
        self, request: Request, nodes: int, ssds_down: Sequence[int]
    ) -> Sequence[Place]:
        """The places of a request in an order in which they fit.

        Raises:
            Misfit: there is none. It is that of the first order.
        """
        reason: Optional[Misfit] = None
        for places in _attempts(request.places):
            free = self if len(places) == 1 else self.copy()
            placing = _Placing(free, self._chassis, nodes, ssds_down)
            try:
                placing.place_all(places, check=True)
            except Misfit as error:
                reason = reason or error
            else:
                return places
        assert reason is not None
        raise reason

    def slots(self, need: Need, nodes: int) -> list[tuple[int, int]]:
        """Sets of nodes, and a number for each. A node has as many free slots as the
        numbers of the sets that have it add up to: these are powers of two, so that
        there are few sets, however many sorts of nodes there are."""
        found: list[int] = []
        for (cores, gpus), members in self._by_size.items():
            each = _slots(cores, gpus, need)
            members &= nodes if each else 0
            if not members:
                continue
            found.extend([0] * (each.bit_length() - len(found)))
            for place in bits.numbers(each):
                found[place] |= members
        return [(members, 1 << place) for place, members in enumerate(found)]


def _attempts(places: tuple[Place, ...]) -> Iterable[tuple[Place, ...]]:
    """The orders in which the places of a request are tried. The first one of several
    may leave too little for those after it, as it takes the larger nodes, or all that
    its count accepts."""
    orders = [places, places[::-1]] if len(places) > 1 else [places]
    modest = [(order[0].least, *order[1:]) for order in orders if order[1:]]
    return dict.fromkeys(orders + modest)


@lru_cache(maxsize=4096)
def _sizes(node: Taken) -> tuple[int, int]:
    return bits.size(node.cores), bits.size(node.gpus)


class _Placing:
    """The placing of one request."""

    def __init__(
        self,
        free: Free,
        chassis: Sequence[Chassis],
        nodes: int,
        ssds_down: Sequence[int],
    ) -> None:
        self._free = free
        self._chassis = chassis
        self._nodes = nodes
        self._ssds_down = ssds_down
        self._of_use = 0
        self.grant = Grant()

    def place_all(self, places: Sequence[Place], check: bool = False) -> None:
        """Take what belongs in places. With ``check`` the last one is not taken.

        Raises:
            Misfit: one does not fit.
        """
        for index, place in enumerate(places):
            self._of_use = 0
            for later in places[index + 1 :]:
                self._of_use |= self._fitting(later.group)
            self._place(place, check and index == len(places) - 1)

    def _place(self, place: Place, check: bool) -> None:
        """Take what belongs in a place, or ``check`` whether it fits."""
        group = place.group
        if place.chassis is not None:
            each = [group.count.largest(room) for room in self._rooms(group)]
            able = [
                number
                for number, times in enumerate(each)
                if times and not (place.exclusive and self._is_shared(number))
            ]
            wanted = place.chassis.largest(len(able))
            if not wanted:
                raise Misfit(place, len(able))
            if not check:
                self._take_below(group, {n: each[n] for n in able[:wanted]})
            if place.exclusive and not check:
                self._take_whole(group, able[:wanted])
            return
        rooms = self._rooms(group, group.count.most)
        times = group.count.largest(sum(rooms))
        if not times:
            raise Misfit(place, sum(self._rooms(group)))
        if check:
            return
        if group.below_one:
            below = {}
            for number, room in enumerate(rooms):
                below[number] = min(times, room)
                times -= below[number]
            self._take_below(group, below)
        elif group.ssd:
            self._take_ssds_anywhere(group.ssd)
        else:
            self._take_nodes(group, times, self._fitting(group))

    def _rooms(self, group: Group, enough: Optional[int] = None) -> list[int]:
        """How often a group fits below each chassis, if it is to be below one; else how
        often it fits. There is no need to look for more than ``enough``."""
        candidates = _Candidates(self._free, group, self._nodes)
        if (group.nodes or group.need.cores) and not candidates.room(self._nodes):
            return [0]
        if group.below_one:
            rooms, total = [], 0
            for number in range(len(self._chassis)):
                rooms.append(self._room(group, number, candidates))
                total += rooms[-1]
                if enough is not None and total >= enough:
                    break
            return rooms
        if group.ssd:
            gib = sum(
                bits.size(self._ssds(number)) * chassis.ssd_size
                for number, chassis in enumerate(self._chassis)
            )
            return [int(gib >= group.ssd)]
        return [candidates.room(self._nodes)]

    def _room(self, group: Group, number: int, candidates: _Candidates) -> int:
        chassis = self._chassis[number]
        if not group.ssd:
            return candidates.room(chassis.nodes, chassis.first)
        ssds = bits.size(self._ssds(number)) // chassis.ssds_for(group.ssd)
        if not (ssds and (group.nodes or group.need.cores)):
            return ssds
        return min(ssds, candidates.room(chassis.nodes, chassis.first))

    def _is_shared(self, number: int) -> bool:
        """Whether the request may not get all that is below a chassis."""
        below = self._free.below(number)
        ssds = (1 << self._chassis[number].ssds) - 1
        is_idle = self._free.is_idle(below) and not below & ~self._nodes
        return not is_idle or self._ssds(number) != ssds

    def _take_whole(self, group: Group, chassis: Iterable[int]) -> None:
        """Take what is left of these chassis. Nodes beside those of the group have
        slots as well: flux-shell has to start a task on each node of a job."""
        for number in chassis:
            self._take_ssds(number, self._chassis[number].ssds)
            below = list(bits.numbers(self._free.below(number)))
            beside = len([each for each in below if each not in self.grant.nodes])
            self.grant.slots += beside * (group.slots // (group.nodes or 1))
            self._take({each: self._free.of_node(each) for each in below})

    def _fitting(self, group: Group) -> int:
        """The set of nodes each of which has what a group needs."""
        return self._free.fitting(group.need) & self._nodes

    def _take_below(self, group: Group, times: Mapping[int, int]) -> None:
        """Take a group so often below each of these chassis, where it fits."""
        fitting = self._fitting(group)  # what is below one chassis is below no other
        for number, here in times.items():
            chassis = self._chassis[number]
            if here:
                self._take_nodes(group, here, fitting & chassis.nodes)
            if here and group.ssd:
                self._take_ssds(number, here * chassis.ssds_for(group.ssd))

    def _take_nodes(self, group: Group, times: int, nodes: int) -> None:
        """Take a group so often from a set of nodes each of which has what it needs."""
        need = group.need
        wanted: dict[int, Taken] = {}
        # First those that the groups after this one have no use for.
        of_use = nodes & self._of_use
        found = chain(bits.numbers(nodes & ~of_use), bits.numbers(of_use))
        self.grant.slots += times * group.slots
        if group.nodes:
            for number in islice(found, times * group.nodes):
                free = self._free.of_node(number)
                wanted[number] = free if need.exclusive else _part(free, need, 1)
        elif need.cores:
            for number in found:
                free = self._free.of_node(number)
                here = min(times, _slots(*_sizes(free), need))
                wanted[number] = _part(free, need, here)
                times -= here
                if not times:
                    break
        self._take(wanted)

    def _take(self, wanted: Mapping[int, Taken]) -> None:
        for number, taken in self._free.take(wanted).items():
            before = self.grant.nodes.get(number, Taken(0, 0))
            self.grant.nodes[number] = Taken(
                before.cores | taken.cores, before.gpus | taken.gpus
            )

    def _ssds(self, number: int) -> int:
        """The ``ssd`` of a chassis that the request may get."""
        return self._free.ssds(number) & ~self._ssds_down[number]

    def _take_ssds(self, number: int, count: int) -> None:
        found = bits.highest(self._ssds(number), count)
        self._free.take_ssds(number, found)
        self.grant.ssds[number] = self.grant.ssds.get(number, 0) | found

    def _take_ssds_anywhere(self, gib: int) -> None:
        for number, chassis in enumerate(self._chassis):
            count = min(bits.size(self._ssds(number)), chassis.ssds_for(gib))
            if count:
                self._take_ssds(number, count)
                gib -= count * chassis.ssd_size
            if gib <= 0:
                return


class _Candidates:
    """The nodes that have what a group needs of each."""

    def __init__(self, free: Free, group: Group, nodes: int) -> None:
        self._nodes = group.nodes
        self._sets: list[tuple[int, int]] = []
        if group.nodes:
            self._sets.append((free.fitting(group.need) & nodes, 1))
        elif group.need.cores:
            self._sets = free.slots(group.need, nodes)

    def room(self, nodes: int, first: int = 0) -> int:
        """How often the group fits on these nodes, of which ``first`` is the lowest."""
        found = sum(
            # Shifted, since the nodes of a chassis are close to each other.
            bits.size((members & nodes) >> first) * each
            for members, each in self._sets
        )
        return found // (self._nodes or 1)


def _part(free: Taken, need: Need, times: int) -> Taken:
    return Taken(
        bits.lowest(free.cores, need.cores * times),
        bits.lowest(free.gpus, need.gpus * times),
    )


def _slots(cores: int, gpus: int, need: Need) -> int:
    """How many slots there are in so many cores and GPUs."""
    each = cores // need.cores
    return min(each, gpus // need.gpus) if need.gpus else each
