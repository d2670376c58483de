# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Nodes, cores and Rabbit storage, and which of them a job gets.

A request is matched as Fluxion does it: the contents of a ``slot`` are the job's
alone, a slot with ``ssd`` in it stays within one chassis, and the first place
that fits is taken, but of ``ssd`` the last ones. There is no backtracking over
choices that fitted.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Union

from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jgf import NODE, STORAGE_NODE
from flux_k8s.objects.mapping import RabbitMapping


class RequestError(ValueError):
    """A jobspec's ``resources`` that this scheduler does not understand."""


@dataclass
class Node:
    """A node. ``chassis`` is None where there is no Rabbit. ``type`` is
    ``storage_node`` for that of a Rabbit itself.

    ``dynamic`` are properties that were set while the instance ran; ``closed``: the
    scheduler knows that the node is drained.
    """

    rank: int
    host: str
    cores: int
    gpus: int
    chassis: Optional[int]
    properties: tuple[str, ...] = ()
    dynamic: list[str] = field(default_factory=list)
    up: bool = True
    drained: Optional[str] = None
    closed: bool = False
    type: str = NODE

    def close(self) -> None:
        self.closed = self.drained is not None


@dataclass(frozen=True)
class Chassis:
    """A chassis with its Rabbit, which has ``ssds`` vertices of ``ssd_size`` GiB."""

    index: int
    rabbit: str
    ssds: int
    ssd_size: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """What was taken from one vertex: core or gpu IDs of a node, or the IDs
    of the ssd vertices of a chassis."""

    type: str
    owner: int
    ids: tuple[int, ...]


Grant = tuple[Part, ...]
Usable = Callable[[Node], bool]
Scope = Union[None, Chassis, Node]
"""Where to look: the whole cluster (None), one chassis, or one node."""


def make_nodes(
    hosts: Sequence[str],
    mapping: RabbitMapping,
    cores: int,
    gpus: int,
    properties: Mapping[str, Sequence[str]],
    graph: bool = True,
) -> list[Node]:
    """Nodes with the ranks 0, 1... in the order of ``hosts``.

    Args:
        properties: property name to the hosts that have it.
        graph: the scheduler has a resource graph of ``flux dws2jgf``, in which the host
            of a Rabbit is a ``storage_node``; if not, all are nodes like any other.
    """
    index = {rabbit: i for i, rabbit in enumerate(mapping.rabbits)}
    own = mapping.rabbits_among(hosts) if graph else frozenset()
    return [
        Node(
            rank=rank,
            host=host,
            cores=cores,
            gpus=gpus,
            chassis=index.get(host if host in own else mapping.rabbit_of(host) or ""),
            properties=tuple(name for name in properties if host in properties[name]),
            type=STORAGE_NODE if host in own else NODE,
        )
        for rank, host in enumerate(hosts)
    ]


class Pool:
    """All resources, and which of them are free.

    Args:
        chunks: the number of ``ssd`` of each Rabbit; by default, each has a GiB.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        mapping: RabbitMapping,
        chunks: Optional[int] = None,
    ) -> None:
        self.nodes = list(nodes)
        gib = {rabbit: mapping.capacity(rabbit) // GIB for rabbit in mapping.rabbits}
        self.chassis = [
            Chassis(
                index=i,
                rabbit=rabbit,
                ssds=chunks or gib[rabbit],
                ssd_size=gib[rabbit] // chunks if chunks else 1,
                ranks=tuple(node.rank for node in nodes if node.chassis == i),
            )
            for i, rabbit in enumerate(mapping.rabbits)
        ]
        self._fill()

    def _fill(self) -> None:
        """Nothing is taken."""
        self._free: dict[tuple[str, int], list[int]] = {}
        for node in self.nodes:
            self._free["core", node.rank] = list(range(node.cores))
            self._free["gpu", node.rank] = list(range(node.gpus))
        self._ssds = {c.index: _Runs(c.ssds) for c in self.chassis}
        self._open = Counter(node.chassis for node in self.nodes)

    def empty(self) -> Pool:
        """A pool of the same resources with nothing taken."""
        other = Pool.__new__(Pool)
        other.nodes = self.nodes
        other.chassis = self.chassis
        other._fill()
        return other

    @property
    def open_nodes(self) -> int:
        """How many nodes have something that is free."""
        return sum(self._open.values())

    def is_open(self, node: Node) -> bool:
        """Whether a node has a core or a gpu that is free."""
        return bool(self._free["core", node.rank] or self._free["gpu", node.rank])

    def has_open_nodes(self, chassis: Chassis) -> bool:
        return self._open[chassis.index] > 0

    def free(self, type: str, owner: int) -> int:
        """How many ``core``, ``gpu`` (of a rank) or ``ssd`` (of a chassis) are
        free."""
        if type == "ssd":
            return self._ssds[owner].free
        return len(self._free[type, owner])

    def take(self, type: str, owner: int, count: int) -> Optional[Part]:
        """Take the first ``count`` that are free, or the last ``ssd`` with ``count``
        GiB; None when there are fewer."""
        if type == "ssd":
            count = -(-count // self.chassis[owner].ssd_size)
        if self.free(type, owner) < count:
            return None
        if type == "ssd":
            return Part(type, owner, self._ssds[owner].take(count))
        free, node = self._free[type, owner], self.nodes[owner]
        was_open = self.is_open(node)
        ids = tuple(free[:count])
        del free[:count]
        self._open[node.chassis] -= was_open - self.is_open(node)
        return Part(type, owner, ids)

    def give(self, part: Part) -> None:
        """Give back the resources that were taken."""
        if part.type == "ssd":
            self._ssds[part.owner].give(part.ids)
            return
        node = self.nodes[part.owner]
        was_open = self.is_open(node)
        for id in part.ids:
            bisect.insort(self._free[part.type, part.owner], id)
        self._open[node.chassis] += self.is_open(node) - was_open

    def ssds_down(self, chassis: int) -> frozenset[int]:
        """The ``ssd`` of a chassis that are not given to jobs."""
        return frozenset(self._ssds[chassis].down)

    def ssds_taken(self, chassis: int) -> frozenset[int]:
        """The ``ssd`` of a chassis that jobs have."""
        return self._ssds[chassis].taken

    def set_ssd(self, chassis: int, number: int, up: bool) -> None:
        """Let an ``ssd`` of a chassis be used, or not. A job that has it keeps it."""
        self._ssds[chassis].set(number, up)

    def allocate(self, resources: Any, usable: Usable) -> Optional[Grant]:
        """Take what a jobspec's ``resources`` ask for; None when it does not
        fit now.

        Raises:
            RequestError: ``resources`` is not understood.
        """
        matcher = _Matcher(self, usable)
        if matcher.match(resources, None, False):
            return tuple(matcher.taken)
        matcher.rollback(0)
        return None

    def release(self, grant: Grant) -> None:
        for part in grant:
            self.give(part)


class _Runs:
    """Which of the numbers 0 to n-1 are free, as runs: there are thousands."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._count = count
        self._runs = [(0, count)] if count else []
        self.down: set[int] = set()
        self._held_back: set[int] = set()

    @property
    def taken(self) -> frozenset[int]:
        """The numbers that were taken and not given back."""
        ends = [0, *(end for _, end in self._runs)]
        starts = [*(start for start, _ in self._runs), self._count]
        gaps = itertools.chain.from_iterable(map(range, ends, starts))
        return frozenset(gaps) - self._held_back

    def set(self, id: int, up: bool) -> None:
        """Have a number given out, or not."""
        if up and id in self.down:
            self.down.remove(id)
            if id in self._held_back:
                self._held_back.remove(id)
                self.give([id])
        elif not up and id not in self.down:
            self.down.add(id)
            for index, (start, end) in enumerate(self._runs):
                if start <= id < end:
                    parts = [(start, id), (id + 1, end)]
                    self._runs[index : index + 1] = [(a, b) for a, b in parts if a < b]
                    self._held_back.add(id)
                    self.free -= 1
                    break

    def take(self, count: int) -> tuple[int, ...]:
        ids: list[int] = []
        while len(ids) < count:
            start, end = self._runs.pop()
            first = max(start, end - count + len(ids))
            ids.extend(range(first, end))
            if start < first:
                self._runs.append((start, first))
        self.free -= count
        return tuple(sorted(ids))

    def give(self, ids: Sequence[int]) -> None:
        if self.down:
            self._held_back.update(id for id in ids if id in self.down)
            ids = [id for id in ids if id not in self.down]
        self.free += len(ids)
        runs = sorted(self._runs + [(id, id + 1) for id in ids])
        self._runs = []
        for start, end in runs:
            if self._runs and self._runs[-1][1] == start:
                self._runs[-1] = (self._runs[-1][0], end)
            else:
                self._runs.append((start, end))


class _Matcher:
    """One request being matched. ``taken`` is what it has so far."""

    def __init__(self, pool: Pool, usable: Usable) -> None:
        self._pool = pool
        self._usable = usable
        self.taken: list[Part] = []

    def rollback(self, mark: int) -> None:
        while len(self.taken) > mark:
            self._pool.give(self.taken.pop())

    def match(self, requests: Any, scope: Scope, exclusive: bool) -> bool:
        """Take all of ``requests`` (a list of RFC 14 resource vertices) from
        ``scope``. What was taken before a failure stays in ``taken``."""
        if not isinstance(requests, list):
            raise RequestError(f"resources are {requests!r}, expected a list")
        return all(self._vertex(request, scope, exclusive) for request in requests)

    def _vertex(self, request: Any, scope: Scope, exclusive: bool) -> bool:
        if not isinstance(request, dict):
            raise RequestError(f"resource {request!r} is not an object")
        type = request.get("type")
        count = _count(request)
        children = request.get("with", [])
        if not isinstance(children, list):
            raise RequestError(f"what is in {type!r} is {children!r}, expected a list")
        exclusive = exclusive or request.get("exclusive") is True
        if type == "slot":
            return self._repeat(count, children, scope, True, distinct=False)
        if type == "chassis":
            return self._repeat_in(
                self._chassis_in(scope), count, children, exclusive, distinct=True
            )
        if type in (NODE, STORAGE_NODE):
            return self._nodes(type, count, children, scope, exclusive)
        if type in ("core", "gpu", "ssd"):
            return self._leaf(type, count, scope)
        raise RequestError(f"resource type {type!r} is not supported")

    def _repeat(
        self, count: int, children: Any, scope: Scope, exclusive: bool, distinct: bool
    ) -> bool:
        candidates = self._scopes(children, scope)
        return self._repeat_in(candidates, count, children, exclusive, distinct)

    def _repeat_in(
        self,
        candidates: Iterator[Scope],
        count: int,
        children: Any,
        exclusive: bool,
        distinct: bool,
    ) -> bool:
        """Match ``children`` ``count`` times. A candidate that had no room once
        has none later: so each is left for good when it fails."""
        for candidate in candidates:
            while count > 0:
                mark = len(self.taken)
                if not self.match(children, candidate, exclusive):
                    self.rollback(mark)
                    break
                count -= 1
                if distinct:
                    break
            if count == 0:
                return True
        return False

    def _scopes(self, children: Any, scope: Scope) -> Iterator[Scope]:
        """The places that a slot with these children may be in."""
        types = [child.get("type") for child in children if isinstance(child, dict)]
        if scope is None and "ssd" in types:
            chassis = self._chassis_in(scope)
            if "node" in types:
                return filter(self._pool.has_open_nodes, chassis)
            return chassis
        if "core" in types or "gpu" in types:
            return self._nodes_in(scope)
        return iter((scope,))

    def _chassis_in(self, scope: Scope) -> Iterator[Chassis]:
        if scope is None:
            return iter(self._pool.chassis)
        return iter((scope,) if isinstance(scope, Chassis) else ())

    def _nodes_in(self, scope: Scope) -> Iterator[Node]:
        if isinstance(scope, Node):
            nodes = [scope]
        elif isinstance(scope, Chassis):
            nodes = [self._pool.nodes[rank] for rank in scope.ranks]
        else:
            nodes = self._pool.nodes
        pool = self._pool
        return (node for node in nodes if pool.is_open(node) and self._usable(node))

    def _nodes(
        self, type: str, count: int, children: Any, scope: Scope, exclusive: bool
    ) -> bool:
        if isinstance(scope, Node):
            raise RequestError("a node within a node")
        for node in self._nodes_in(scope):
            if count == 0:
                break
            if node.type != type:
                continue
            mark = len(self.taken)
            if self._node(node, children, exclusive):
                count -= 1
            else:
                self.rollback(mark)
        return count == 0

    def _node(self, node: Node, children: Any, exclusive: bool) -> bool:
        if not exclusive:
            return self.match(children, node, False)
        if self._pool.free("core", node.rank) < node.cores:
            return False
        mark = len(self.taken)
        if not self.match(children, node, True):
            return False
        # The children fit: now the node is the job's as a whole.
        self.rollback(mark)
        return self._leaf("core", node.cores, node) and (
            node.gpus == 0 or self._leaf("gpu", node.gpus, node)
        )

    def _leaf(self, type: str, count: int, scope: Scope) -> bool:
        owners: Iterator[int]
        if type == "ssd":
            chassis = self._chassis_in(scope)
            owners = (c.index for c in chassis)
        else:
            owners = (node.rank for node in self._nodes_in(scope))
        for owner in owners:
            part = self._pool.take(type, owner, count)
            if part is not None:
                self.taken.append(part)
                return True
        return False


def count_nodes(resources: Any) -> int:
    """How many nodes a jobspec's ``resources`` ask for.

    Raises:
        RequestError: ``resources`` is not understood.
    """
    total = 0
    for request in resources if isinstance(resources, list) else ():
        below = request.get("with") if isinstance(request, dict) else None
        if isinstance(request, dict) and request.get("type") == "node":
            total += _count(request)
        elif below:
            total += _count(request) * count_nodes(below)
    return total


def _count(request: Mapping[str, Any]) -> int:
    """A vertex' count: an integer, or a range, of which we take the least."""
    count = request.get("count")
    if isinstance(count, dict):
        count = count.get("min")
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise RequestError(
            f"count of {request.get('type')!r} is {count!r}, expected an integer"
        )
    return count
