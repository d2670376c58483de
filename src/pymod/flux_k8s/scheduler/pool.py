# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The nodes and Rabbits of an instance, their state, and which jobs have what.

:class:`Pool` is all that ``sched-rabbit`` knows. :mod:`.request` reads what a job asks
for, :mod:`.free` places it, :mod:`.rwriter` writes R, :mod:`.graph` answers the
requests that the module ``dws`` sends to a scheduler.

Storage is a job's until the job has given back the last of its nodes: of a job that
gives back nodes one by one, the storage is in use until then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from operator import or_
from typing import Any, Iterable, Mapping, Optional, Sequence

from flux_k8s.errors import DWSError
from flux_k8s.formats import bits
from flux_k8s.formats.constraints import Constraint, Members
from flux_k8s.formats.directives import GIB
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.scheduler.free import Chassis, Free, Grant, Misfit, Taken
from flux_k8s.scheduler.request import Group, Request

MAX_CONSTRAINTS = 1024
"""The constraints whose nodes are kept."""


class Infeasible(DWSError):
    """A request that can never be satisfied."""


@dataclass(frozen=True)
class Node:
    """A broker's node.

    Attributes:
        cores, gpus: the sets of their ids.
    """

    rank: int
    host: str
    cores: int
    gpus: int


def make_chassis(
    mapping: RabbitMapping, chunks: int, nodes: Sequence[Node]
) -> list[Chassis]:
    """The Rabbits of a mapping, in its order.

    Args:
        chunks: into how many ``ssd`` each is cut; into fewer, if these would have less
            than a GiB.
    """
    below: dict[str, int] = {}
    for number, node in enumerate(nodes):
        rabbit = mapping.rabbit_of(node.host)
        if rabbit is not None:
            below[rabbit] = below.get(rabbit, 0) | 1 << number
    made = []
    for rabbit in mapping.rabbits:
        gib = mapping.capacity(rabbit) // GIB
        count = min(chunks, gib)
        size = gib // count if count else 1
        made.append(Chassis(rabbit, count, size, below.get(rabbit, 0)))
    return made


def storage_nodes(mapping: RabbitMapping, nodes: Sequence[Node]) -> int:
    """The set of nodes that are Rabbits themselves."""
    return bits.mask(n for n, node in enumerate(nodes) if mapping.has(node.host))


class Pool:
    """All resources.

    Args:
        nodes: by rank, ascending.
        properties: the ranks that have each property.
        apart: the set of nodes that no job gets: those of Rabbits.

    Attributes:
        nodes: they keep their numbers for ever.
        chassis: likewise.
        up: the set of nodes that are up.
        present: the set of nodes that were not removed.
        down_ssds: the set of ``ssd`` of each chassis that no job gets.
        generation: changes with everything that may let a request fit, or not fit, now
            or when jobs have ended.
        outages: changes with what is up, or in service.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        properties: Mapping[str, Iterable[int]],
        chassis: Sequence[Chassis],
        apart: int = 0,
    ) -> None:
        self.nodes = tuple(nodes)
        self.chassis = tuple(chassis)
        self.present = self.up = (1 << len(self.nodes)) - 1
        self.down_ssds = [0] * len(self.chassis)
        self.generation = self.outages = 0
        self._apart = apart
        self._nodes_of: dict[Any, int] = {}
        self._number_of: dict[Any, int] = {
            node.rank: n for n, node in enumerate(self.nodes)
        }
        for number, node in enumerate(self.nodes):
            self._nodes_of[node.host] = self._nodes_of.get(node.host, 0) | 1 << number
        self._properties = {
            name: self.set_of(ranks) for name, ranks in properties.items()
        }
        self._marks: dict[str, int] = {}
        self._all = Free([Taken(n.cores, n.gpus) for n in self.nodes], self.chassis)
        self._free = self._all.copy()
        self._grants: dict[int, Grant] = {}
        self._allowed: dict[tuple[Constraint, bool], int] = {}

    # Nodes

    def set_of(self, ranks: Iterable[int]) -> int:
        """The set of the nodes of these ranks. Ranks without a node are left out."""
        known = self._number_of
        return bits.mask(known[rank] for rank in ranks if rank in known)

    def number_of(self, host: str) -> Optional[int]:
        """The number of the first node of a host."""
        nodes = self._nodes_of.get(host, 0)
        return next(bits.numbers(nodes), None)

    @property
    def properties(self) -> Mapping[str, int]:
        """The sets of nodes that have each property of the instance's resources."""
        return self._properties

    def mark(self, key: str, number: int, present: bool) -> None:
        """Give a node a property for now, or take it away. What the resources of the
        instance say themselves does not change."""
        marked = self._marks.get(key, 0)
        bit = 1 << number
        self._marks[key] = marked | bit if present else marked & ~bit
        self._change_nodes()

    def remove(self, ranks: Iterable[int]) -> None:
        """Nodes are no longer part of the instance."""
        gone = self.set_of(ranks)
        self.present &= ~gone
        for free in (self._all, self._free):
            free.remove(gone)
        self._change_nodes()

    def set_up(self, nodes: int, up: bool) -> None:
        self.up = self.up | nodes if up else self.up & ~nodes
        self._change_state()

    def _change_nodes(self) -> None:
        self._allowed.clear()
        self._change_state()

    def _change_state(self) -> None:
        self.generation += 1
        self.outages += 1

    # Storage

    def set_ssd(self, chassis: int, number: int, up: bool) -> None:
        """Let jobs have an ``ssd``, or not. A job that has it keeps it."""
        bit = 1 << number
        down = self.down_ssds[chassis]
        self.down_ssds[chassis] = down & ~bit if up else down | bit
        self._change_state()

    def taken_ssds(self, chassis: int) -> int:
        """The set of ``ssd`` that jobs have."""
        return self._all.ssds(chassis) & ~self._free.ssds(chassis)

    # Jobs

    @property
    def grants(self) -> Mapping[int, Grant]:
        """The resources of each job."""
        return self._grants

    def taken(self) -> dict[int, Taken]:
        """The cores and GPUs that jobs have of each node of which they have any."""
        found: dict[int, Taken] = {}
        for number, node in enumerate(self.nodes):
            cores, gpus = self._free.of_node(number)
            if cores != node.cores or gpus != node.gpus:
                found[number] = Taken(node.cores & ~cores, node.gpus & ~gpus)
        return found

    def allocate(
        self, jobid: int, request: Request, kept: Optional[Grant] = None
    ) -> Optional[Grant]:
        """Give a job what it asks for; None if that does not fit now.

        Args:
            kept: it gets none of these nodes and ``ssd``.
        """
        free = self._free.copy()
        nodes, ssds_down = self._usable(request), list(self.down_ssds)
        if kept is not None:
            nodes &= ~bits.mask(kept.nodes)
            for chassis, ssds in kept.ssds.items():
                ssds_down[chassis] |= ssds
        try:
            grant = free.place(request, nodes, ssds_down)
        except Misfit:
            return None
        self._free = free
        self._grants[jobid] = grant
        self.generation += 1
        return grant

    def hold(self, jobid: int, wanted: Grant, gib: Mapping[int, int]) -> None:
        """Note what a job has from an earlier scheduler. What another job has is not
        given twice.

        Args:
            gib: the storage that it has of each chassis. If ``wanted.ssds`` is less,
                the job gets others as well: the numbers of ``ssd`` have no meaning but
                here.
        """
        grant = Grant(self._free.take(wanted.nodes))
        for number, size in gib.items():
            free = self._free.ssds(number)
            found = free & wanted.ssds.get(number, 0)
            missing = self.chassis[number].ssds_for(size) - bits.size(found)
            found |= bits.highest(free & ~found, missing)
            self._free.take_ssds(number, found)
            grant.ssds[number] = found
        self._grants[jobid] = grant
        self.generation += 1

    def release(self, jobid: int, ranks: Optional[Iterable[int]] = None) -> None:
        """A job gives back the nodes of these ranks; or, without ``ranks``, all that it
        has yet."""
        grant = self._grants.get(jobid)
        if grant is None:
            return
        self.generation += 1
        if ranks is None:
            self._free.give((self._grants.pop(jobid),))
            return
        back = Grant()
        for number in bits.numbers(self.set_of(ranks)):
            taken = grant.nodes.pop(number, None)
            if taken is not None:
                back.nodes[number] = taken
        self._free.give((back,))

    # Whether a request can be satisfied

    def bind(self, request: Request) -> Request:
        """The same request, with sets of this pool's nodes for the hosts and ranks that
        its constraint names. Thousands of jobs may wait, each of which names thousands
        of hosts that are not there."""
        return replace(request, constraint=request.constraint.bind(self._nodes_among))

    def check(self, request: Request) -> None:
        """Refuse a request that could not be satisfied if no job ran, all nodes were up
        and all Rabbits in service.

        Raises:
            Infeasible: names the part that is missing.
        """
        nodes = self._nodes_for(request, False)
        try:
            self._all.check(request, nodes, [0] * len(self.chassis))
        except Misfit as error:
            allowed = bits.size(nodes)
            limit = (
                f" on the {allowed} nodes that its constraints allow"
                if nodes != self.present & ~self._apart
                else ""
            )
            raise Infeasible(f"unsatisfiable: {_describe(error)}{limit}") from None

    def is_served(self, request: Request) -> bool:
        """Whether a request could be satisfied if no job ran."""
        return self._fits(request, self._all)

    def fits_after(self, request: Request, jobs: Sequence[int]) -> Optional[int]:
        """How many of these jobs must have given back all, in this order, until a
        request fits; None if it does not after all of them."""

        def gone(free: Free, first: int, last: int) -> Free:
            after = free.copy()
            after.give(self._grants[jobid] for jobid in jobs[first:last])
            return after

        free, low, high = self._free, 0, len(jobs)
        if not self._fits(request, gone(free, low, high)):
            return None
        while high - low > 1:  # it fits after ``high`` of them, not after ``low``
            middle = (low + high) // 2
            after = gone(free, low, middle)
            if self._fits(request, after):
                high = middle
            else:
                free, low = after, middle
        return high

    def place_after(self, request: Request, jobs: Sequence[int]) -> Grant:
        """What a request gets when these jobs have given back all.

        Raises:
            Misfit: it does not fit then.
        """
        free = self._free.copy()
        free.give(self._grants[jobid] for jobid in jobs)
        return free.place(request, self._usable(request), self.down_ssds)

    def _fits(self, request: Request, free: Free) -> bool:
        try:
            free.check(request, self._usable(request), self.down_ssds)
        except Misfit:
            return False
        return True

    def _usable(self, request: Request) -> int:
        return self._nodes_for(request, True) & self.up

    def _nodes_for(self, request: Request, marked: bool) -> int:
        """The set of nodes that a request's constraint allows, with regard to the
        properties that nodes have for now, or without."""
        key = request.constraint, marked
        found = self._allowed.get(key)
        if found is None:
            if len(self._allowed) >= MAX_CONSTRAINTS:
                self._allowed.clear()
            found = self._allowed[key] = (
                self._select(*key) & self.present & ~self._apart
            )
        return found

    def _select(self, constraint: Constraint, marked: bool) -> int:
        everything = (1 << len(self.nodes)) - 1
        return constraint.select(
            everything, lambda name: self._having(name, marked), self._nodes_among
        )

    def _nodes_among(self, members: Members) -> int:
        """The set of the nodes of some hosts or ranks."""
        hosts = (self._nodes_of[host] for host in members & self._nodes_of.keys())
        ranks = members & self._number_of.keys()
        return reduce(or_, hosts, bits.mask(map(self._number_of.__getitem__, ranks)))

    def _having(self, name: str, marked: bool) -> int:
        marks = self._marks.get(name, 0) if marked else 0
        return self._properties.get(name, 0) | marks


def _describe(misfit: Misfit) -> str:
    """What is missing, for the job's user."""
    group = misfit.place.group
    count, what = group.count.least, _name(group)
    if misfit.place.chassis is not None:
        inner = "" if count == 1 else f"{count} times "
        whole = "whole " if misfit.place.exclusive else ""
        count, what = misfit.place.chassis.least, f"a {whole}chassis with {inner}{what}"
    return f"it needs {count} times {what}, and there is room for {misfit.most}"


def _name(group: Group) -> str:
    need, parts = group.need, []
    if group.nodes or need.cores:
        whole = "whole " if need.exclusive else ""
        nodes = f"{group.nodes} {whole}nodes" if group.nodes > 1 else f"a {whole}node"
        amount = _plural(need.cores, "core") + (
            f" and {_plural(need.gpus, 'GPU')}" if need.gpus else ""
        )
        parts.append(f"{nodes if group.nodes else 'a slot'} with {amount}")
    if group.ssd:
        parts.append(f"{group.ssd} GiB of storage")
    where = " below one Rabbit" if group.below_one and group.ssd else ""
    return " and ".join(parts) + where


def _plural(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


@dataclass(frozen=True, eq=False)
class Reservation:
    """What is kept for a job from those behind it that do not end in time.

    Attributes:
        begin: when it can be started, UNIX time, if all jobs run to the end of their
            time limits; -inf if that is not known.
        grant: what it gets then.
    """

    begin: float
    grant: Grant

    def leaves(self, now: float, duration: float) -> bool:
        """Whether a job that is started now ends in time.

        Args:
            duration: seconds; 0 for no limit.
        """
        return self.begin == inf or 0 < duration <= self.begin - now


NOTHING = Reservation(inf, Grant())
"""No job waits."""


def reserve(pool: Pool, request: Request, ends: Mapping[int, float]) -> Reservation:
    """The reservation of a request that fits if no job runs.

    Jobs that are started with regard to it do not make it begin later.

    Args:
        ends: when the time limit of each job is over, as far as it has one.
    """
    limited = sorted(
        (end, jobid) for jobid, end in ends.items() if jobid in pool.grants
    )
    jobs = [jobid for _, jobid in limited]
    count = pool.fits_after(request, jobs)
    if not count:
        return Reservation(-inf, pool.place_after(request, list(pool.grants)))
    return Reservation(limited[count - 1][0], pool.place_after(request, jobs[:count]))
