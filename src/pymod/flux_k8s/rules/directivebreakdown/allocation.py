# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The storage that a job may use on each Rabbit, and the part of it that is left while
allocation sets are placed."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Collection, Iterable, Mapping, Optional, Sequence

from flux_k8s.errors import AllocationError, BadObject
from flux_k8s.formats import jgf
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.hostlist import natural_key
from flux_k8s.formats.rset import Allocated
from flux_k8s.objects import storageusage
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import Json
from flux_k8s.reasons import Reason
from flux_k8s.rules.directivebreakdown.breakdown import (
    AllocationSet,
    Breakdown,
    Labels,
)


class OtherMapping(BadObject):
    """The graph of R is not that of the rabbit mapping: either may be too old."""


@dataclass(frozen=True)
class Allocation:
    """The nodes of a job, and the storage that it may use.

    Attributes:
        hosts: the job's compute nodes, each once, in the order of their ranks.
        nodes_per_rabbit: the number of the job's nodes below each of its Rabbits; 0
            for a Rabbit on which the job has storage only.
        unconnected: the job's nodes that have no Rabbit.
        gib_per_rabbit: GiB that the scheduler gave the job on each of its Rabbits, and
            that the job may use on others. A Rabbit that is missing here, or has None,
            has an unknown share. If all have 0, all are unknown: the scheduler got no
            request for storage (``scheduler=none``).
        room: bytes that are left on each Rabbit. No Rabbit takes more, whatever the
            scheduler gave. A Rabbit that is missing here has no known limit.
        other_shares: bytes of ``room`` that the scheduler gave to other jobs whose
            storage is not placed yet.
        storages: the labels of each Storage that is fit for use. A Storage that is no
            Rabbit of the job is a last resort, for a set that needs no PCIe connection
            and that too few Rabbits of the job may take. None: the job's Rabbits are
            fit, and have all labels.
        broken_rabbits: the status of each Rabbit that is not fit for use.
        colocated: for each colocation key, the Rabbits with an allocation that has this
            key, of any job or persistent file system.
    """

    hosts: tuple[str, ...]
    nodes_per_rabbit: Mapping[str, int]
    unconnected: tuple[str, ...] = ()
    gib_per_rabbit: Mapping[str, Optional[int]] = field(default_factory=dict)
    room: Mapping[str, int] = field(default_factory=dict)
    other_shares: Mapping[str, int] = field(default_factory=dict)
    storages: Optional[Mapping[str, Labels]] = None
    broken_rabbits: Mapping[str, str] = field(default_factory=dict)
    colocated: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def without(self, hosts: Collection[str], rabbits: Collection[str]) -> Allocation:
        """The allocation without some nodes, and without some Rabbits."""
        left = {r: n for r, n in self.nodes_per_rabbit.items() if r not in rabbits}
        return replace(
            self,
            hosts=tuple(host for host in self.hosts if host not in hosts),
            nodes_per_rabbit=left,
        )

    @cached_property
    def rabbits(self) -> tuple[str, ...]:
        """The job's own Rabbits, in the order in which they are considered."""
        return tuple(sorted(self.nodes_per_rabbit, key=natural_key))

    @cached_property
    def spares(self) -> tuple[str, ...]:
        """The Storages that are no Rabbits of the job, in the order in which they are
        considered."""
        others = set(self.storages or ()) - set(self.nodes_per_rabbit)
        return tuple(sorted(others, key=natural_key))


def job_allocation(
    rset: Allocated, mapping: RabbitMapping, name: str = "R"
) -> Allocation:
    """The allocation of the job whose R is ``rset``. Errors call R ``name``.

    A host that R lists twice counts once: it mounts each file system once, however many
    brokers run on it.

    Raises:
        OtherMapping, BadObject, UnreadableR: as :func:`gib_per_rabbit`.
    """
    ssd = gib_per_rabbit(rset, mapping, name)
    rabbit_of = mapping.rabbits_of(rset.hosts)
    nodes = Counter(rabbit_of.values())
    return Allocation(
        hosts=tuple(rabbit_of),
        nodes_per_rabbit={rabbit: nodes[rabbit] for rabbit in ssd},
        unconnected=tuple(h for h, r in rabbit_of.items() if r is None),
        gib_per_rabbit=ssd,
    )


def gib_per_rabbit(
    rset: Allocated, mapping: RabbitMapping, name: str = "R"
) -> dict[str, Optional[int]]:
    """The Rabbits of R, in the mapping's order, and the ``ssd`` (GiB) on each.

    The graph in ``scheduling`` has both. Without a graph, or with one that has no
    Rabbits, the result is the Rabbits of R's hosts, with None for the unknown amount.
    The amount is also unknown on a Rabbit that the job has as a whole, when the graph
    leaves out what is in it.

    Raises:
        OtherMapping: the graph and the mapping do not agree about a Rabbit on which
            there is ``ssd``: the mapping lacks it, or a node is below another one.
            The error calls R ``name``.
        BadObject: the graph and ``nodelist`` do not agree: a node that R does not have.
        UnreadableR: the process that read R found the graph malformed.
    """
    graph = rset.graph(name)
    rabbit_of = mapping.rabbits_of(rset.hosts)
    connected = set(rabbit_of.values())
    if not graph.ssd:
        return {rabbit: None for rabbit in mapping.rabbits if rabbit in connected}
    _check_graph(graph, rabbit_of, mapping, name)
    ssd = dict(graph.ssd)
    if not graph.complete:
        left_out = rabbit_of.keys() - graph.rabbit_of.keys()
        ssd.update(dict.fromkeys(filter(None, map(rabbit_of.get, left_out))))
    return {
        rabbit: ssd.get(rabbit, 0)
        for rabbit in mapping.rabbits
        if rabbit in connected or ssd.get(rabbit, 0) != 0
    }


def _check_graph(
    graph: jgf.Graph,
    rabbit_of: Mapping[str, Optional[str]],
    mapping: RabbitMapping,
    name: str,
) -> None:
    """Refuse a graph that contradicts the mapping, or R's own nodelist. Below a Rabbit
    on which the job has no ``ssd`` it may: Lustre is reached from any node."""
    place = "scheduling.graph.nodes"
    used = {rabbit for rabbit, ssd in graph.ssd.items() if ssd != 0}
    for rabbit in used:
        if not mapping.has(rabbit):
            raise OtherMapping(name, place, rabbit, "a Rabbit of the rabbit mapping")
    if graph.rabbit_of == rabbit_of:
        return  # without a loop over ten thousand hosts
    for host in (*graph.rabbit_of, *rabbit_of):
        if host not in rabbit_of:
            raise BadObject(name, place, host, "a node of execution.nodelist")
        if host not in graph.rabbit_of:
            if not graph.complete:
                continue
            raise BadObject(name, "execution.nodelist", host, f"a node of {place}")
        found, expected = graph.rabbit_of[host], rabbit_of[host]
        if found != expected and not used.isdisjoint((found, expected)):
            raise OtherMapping(
                name,
                place,
                f"{host} below {found or 'no Rabbit'}",
                f"{host} below {expected or 'no Rabbit'}, as in the rabbit mapping",
            )


def beyond_shares(
    specs: Sequence[Sequence[Json]], allocation: Allocation
) -> list[dict[str, int]]:
    """The bytes on each Rabbit that each of a job's Servers takes beyond the job's
    share. The scheduler does not know of these bytes, and may give them to other jobs.

    Args:
        specs: ``spec.allocationSets`` of each Servers object.

    Returns:
        For each Servers object, the bytes by Rabbit.
    """
    taken: Counter[str] = Counter()
    result = []
    for sets in specs:
        beyond = {}
        for rabbit, size in storageusage.requested(sets).items():
            share = (allocation.gib_per_rabbit.get(rabbit) or 0) * GIB
            before = max(share, taken[rabbit])
            taken[rabbit] += size
            if taken[rabbit] > before:
                beyond[rabbit] = taken[rabbit] - before
        result.append(beyond)
    return result


def colocation_annotations(breakdown: Breakdown) -> dict[str, str]:
    """The annotations that go with the ``spec`` of a breakdown's Servers."""
    keys = [list(entry.colocation) for entry in breakdown.allocation_sets]
    return {storageusage.COLOCATION_ANNOTATION: json.dumps(keys)} if any(keys) else {}


class Room:
    """The bytes that are left on each Rabbit while the sets of a job are placed.

    The scheduler gives a job a share of a Rabbit. A job that needs more can take more
    there, of the bytes that the scheduler gave to no job.
    """

    def __init__(self, allocation: Allocation) -> None:
        self._storages = allocation.storages
        self._broken_rabbits = allocation.broken_rabbits
        self._colocated = {key: set(on) for key, on in allocation.colocated.items()}
        self._shares: dict[str, float] = {}
        self._limits: dict[str, float] = {}
        self._taken: Counter[str] = Counter()
        given = allocation.gib_per_rabbit
        shares = given if any(given.values()) else {}
        for rabbit in (*allocation.rabbits, *allocation.spares):
            left = allocation.room.get(rabbit, math.inf)
            spare = max(0, left - allocation.other_shares.get(rabbit, 0))
            ssd = shares.get(rabbit)
            share = spare if ssd is None else min(ssd * GIB, left)
            self._shares[rabbit] = share
            self._limits[rabbit] = max(share, spare)

    @property
    def shortage(self) -> tuple[int, int]:
        """A measure by which placements are compared: bytes beyond the room, then
        bytes beyond the shares."""
        limits, shares = map(self._beyond, (self._limits, self._shares))
        return sum(limits.values()), sum(shares.values())

    def check(self) -> None:
        """Refuse a placement that takes more of a Rabbit than there is room for.

        Raises:
            AllocationError: names the first such Rabbit.
        """
        for rabbit in sorted(self._beyond(self._limits), key=natural_key):
            raise AllocationError(
                f"Rabbit {rabbit} has {gib(self._limits[rabbit])} left, and the job's"
                f" storage needs {gib(self._taken[rabbit])} there",
                Reason.NO_ROOM,
            )

    def _beyond(self, most: Mapping[str, float]) -> dict[str, int]:
        """The bytes that are taken of Rabbits beyond ``most``."""
        taken = self._taken.items()
        return {r: int(size - most[r]) for r, size in taken if size > most[r]}

    def problem(self, rabbit: str, entry: AllocationSet) -> Optional[str]:
        """The reason why ``rabbit`` cannot take an allocation of ``entry``, or None."""
        if self._storages is not None:
            labels = self._storages.get(rabbit)
            if labels is None:
                status = self._broken_rabbits.get(rabbit)
                return "is not fit for use" + (f" ({status})" if status else "")
            missing = entry.missing_label(labels)
            if missing is not None:
                return f"lacks the label {missing}"
        for key in entry.colocation:
            if rabbit in self._colocated.get(key, ()):
                return f'has another allocation with the colocation key "{key}"'
        left = self._limits[rabbit] - self._taken[rabbit]
        smallest = _smallest(entry)
        if left < smallest:
            return f"has {gib(left)} left, and an allocation needs {gib(smallest)}"
        return None

    def roomiest(self, rabbits: Iterable[str], entry: AllocationSet) -> list[str]:
        """The ``rabbits`` that can take ``entry``, those with most room first."""
        usable = [r for r in rabbits if self.problem(r, entry) is None]
        return sorted(usable, key=lambda r: (-self._share_left(r), natural_key(r)))

    def _share_left(self, rabbit: str) -> float:
        return self._shares[rabbit] - self._taken[rabbit]

    def distribute(
        self,
        number: int,
        size: int,
        weights: Mapping[str, int],
        most_each: Optional[int],
        counts: dict[str, int],
    ) -> None:
        """Add to ``counts`` until it has ``number`` allocations of ``size`` bytes, by
        ``weights`` as far as they fit into the shares, and then by what is left of
        these. No Rabbit is given more than ``most_each``."""
        each = most_each or number
        order = sorted(weights, key=lambda r: (-self._share_left(r), -self._limits[r]))
        for most in (self._shares, self._limits, dict.fromkeys(weights, math.inf)):
            rest = number - sum(counts.values())
            if rest <= 0:
                return
            places = {}
            for rabbit in order:
                left = max(0, most[rabbit] - self._taken[rabbit])
                fit = each if left == math.inf else min(each, int(left) // size)
                places[rabbit] = fit - counts[rabbit]
            for rabbit, count in apportion(rest, weights, places).items():
                counts[rabbit] += count
            unused = {r: self._share_left(r) - size * counts[r] for r in order}
            weights = {r: int(min(max(0, n), 2**63)) for r, n in unused.items()}

    def take(
        self, size: int, counts: Mapping[str, int], colocation: Iterable[str]
    ) -> None:
        """Note that allocations were placed."""
        for rabbit, count in counts.items():
            self._taken[rabbit] += size * count
        for key in colocation:
            self._colocated.setdefault(key, set()).update(counts)


def _smallest(entry: AllocationSet) -> int:
    """The bytes that the smallest useful allocation of a set takes. Where the number
    of allocations is our choice, none is made smaller than 1 GiB."""
    if entry.strategy.each:
        return entry.minimum_capacity
    if entry.number is None:
        return min(entry.minimum_capacity, GIB)
    return -(-entry.minimum_capacity // entry.number)


def gib(size: float) -> str:
    """A number of bytes, for a message."""
    return f"{max(0.0, size) / GIB:.6g} GiB"


def apportion(
    number: int, weights: Mapping[str, int], limits: Mapping[str, int]
) -> dict[str, int]:
    """Divide ``number`` by ``weights`` with the method of the largest remainder: each
    gets the whole part of its quota, and those with the largest remainders one more. Of
    equal ones those come first that come first in ``limits``. What is beyond a limit is
    divided among the others, at last among those without weight."""
    counts = dict.fromkeys(limits, 0)
    while number > 0:
        able = [name for name in limits if counts[name] < limits[name]]
        if not able:
            break
        total = sum(weights[name] for name in able)
        quotas = {
            name: divmod(number * weights[name], total)
            if total
            else divmod(number, len(able))
            for name in able
        }
        more = number - sum(whole for whole, _ in quotas.values())
        for name in sorted(able, key=lambda name: -quotas[name][1]):
            quota = quotas[name][0] + (more > 0)
            more -= 1
            given = min(quota, limits[name] - counts[name])
            counts[name] += given
            number -= given
    return counts
