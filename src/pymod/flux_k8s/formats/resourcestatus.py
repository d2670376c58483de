# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The answer of ``resource.status``: the nodes of an instance, and their states."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Iterable, Mapping, Union

from flux_k8s.formats import bits, idset, rset
from flux_k8s.formats.constraints import Constraint, Members
from flux_k8s.json_reader import Reader


@dataclass(frozen=True)
class NodeStates:
    """All nodes that may run jobs, by host name.

    Attributes:
        hosts: their names, in the order of their ranks.
        offline: the nodes whose broker is offline.
        drained: the nodes that are drained, with the reason (empty without one).
        properties: for each property of R, the nodes that have it.
        excluded: the nodes that Flux excludes from scheduling, which are not among
            ``hosts``.
        host_of: the node of each rank.
        sorts: the nodes that have the same resources, with the number of each type
            (``core``, ``gpu``).
    """

    hosts: tuple[str, ...]
    offline: frozenset[str]
    drained: Mapping[str, str]
    properties: Mapping[str, frozenset[str]]
    excluded: frozenset[str] = frozenset()
    host_of: Mapping[int, str] = field(default_factory=dict)
    sorts: tuple[tuple[Mapping[str, int], frozenset[str]], ...] = ()

    def with_all(self, properties: Iterable[str]) -> frozenset[str]:
        """The nodes that have all of ``properties``."""
        sets = [self.properties.get(name, frozenset()) for name in properties]
        return frozenset(self.hosts).intersection(*sets)

    def lacking(self, needed: Mapping[str, int]) -> frozenset[str]:
        """The nodes that have fewer resources than ``needed``, of the types that R
        has."""
        types = needed.keys() & {type for counts, _ in self.sorts for type in counts}
        return frozenset().union(
            *(
                hosts
                for counts, hosts in self.sorts
                if any(counts.get(type, 0) < needed[type] for type in types)
            )
        )

    def has(self, host: str) -> bool:
        """Whether there is such a node."""
        return host in self._number_of

    def matching(self, constraint: Constraint) -> frozenset[str]:
        """The nodes that satisfy a constraint."""
        everything = (1 << len(self.hosts)) - 1
        having = self._having
        found = constraint.select(
            everything, lambda name: having.get(name, 0), self._set_of
        )
        if found == everything:
            return frozenset(self.hosts)
        digits = bin(found)[:1:-1]
        return frozenset(host for host, one in zip(self.hosts, digits) if one == "1")

    def _set_of(self, members: Members) -> int:
        """The places of those of some hosts or ranks, as the bits of an integer."""
        return bits.mask(
            self._number_of[member] for member in members & self._number_of.keys()
        )

    @cached_property
    def _number_of(self) -> Mapping[Union[str, int], int]:
        """The place in ``hosts`` of each host, and of that of each rank."""
        found: dict[Union[str, int], int] = {}
        found.update((host, number) for number, host in enumerate(self.hosts))
        ranks = self.host_of.items()
        found.update((rank, found[host]) for rank, host in ranks if host in found)
        return found

    @cached_property
    def _having(self) -> Mapping[str, int]:
        """``properties``, with the places of the nodes as the bits of an integer."""
        return {name: self._set_of(hosts) for name, hosts in self.properties.items()}


def parse(status: Any) -> NodeStates:
    """Read an answer of ``resource.status``.

    Raises:
        BadObject: the answer has another form.
    """
    reader = Reader("resource.status", status)
    resources = rset.parse(reader.object("R").value, "R of resource.status")
    host_of = {target.rank: target.host for target in resources.targets}

    def hosts(ranks: Iterable[int]) -> frozenset[str]:
        return frozenset(host_of[rank] for rank in ranks if rank in host_of)

    ranks_excluded = _ranks(reader, "exclude")
    excluded = hosts(ranks_excluded)
    for rank in ranks_excluded:
        host_of.pop(rank, None)
    drained: dict[str, str] = {}
    for ranks, entry in reader.object("drain").value.items():
        reason = Reader(reader.name, entry, f"drain.{ranks}").optional_text("reason")
        try:
            found = hosts(idset.decode(ranks))
        except ValueError as error:
            raise reader.bad("drain", f"RFC 22 idsets ({error})") from None
        drained.update(dict.fromkeys(found, reason or ""))
    properties = {name: hosts(ranks) for name, ranks in resources.properties.items()}
    names = tuple(dict.fromkeys(host_of.values()))
    offline = hosts(_ranks(reader, "offline"))
    sorts = _sorts(resources.targets)
    return NodeStates(names, offline, drained, properties, excluded, host_of, sorts)


def _sorts(
    targets: Iterable[rset.Target],
) -> tuple[tuple[Mapping[str, int], frozenset[str]], ...]:
    """The nodes, by their resources."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for target in targets:
        found.setdefault(tuple(target.children.items()), []).append(target.host)
    return tuple(
        ({type: _count(ids) for type, ids in children}, frozenset(hosts))
        for children, hosts in found.items()
    )


def _count(ids: str) -> int:
    return sum(last - first + 1 for first, last in idset.spans(ids))


def _ranks(reader: Reader, path: str) -> tuple[int, ...]:
    return idset.read(reader, path) if reader.has(path) else ()
