# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The answer of ``resource.status``: the nodes of an instance, and their states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping

from flux_k8s.json_reader import Reader
from flux_k8s.rfc import idset, rset
from flux_k8s.rfc.constraints import Constraint


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
    """

    hosts: tuple[str, ...]
    offline: frozenset[str]
    drained: Mapping[str, str]
    properties: Mapping[str, frozenset[str]]
    excluded: frozenset[str] = frozenset()
    host_of: Mapping[int, str] = field(default_factory=dict)

    def with_all(self, properties: Iterable[str]) -> frozenset[str]:
        """The nodes that have all of ``properties``."""
        sets = [self.properties.get(name, frozenset()) for name in properties]
        return frozenset(self.hosts).intersection(*sets)

    def matching(self, constraint: Constraint) -> frozenset[str]:
        """The nodes that satisfy a constraint."""
        return constraint.select(frozenset(self.hosts), self.properties, self.host_of)


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
        info = Reader(reader.name, entry, f"drain.{ranks}")
        reason = info.text("reason") if info.has("reason") else ""
        drained.update(dict.fromkeys(hosts(_decode(reader, "drain", ranks)), reason))
    properties = {name: hosts(ranks) for name, ranks in resources.properties.items()}
    names = tuple(dict.fromkeys(host_of.values()))
    offline = hosts(_ranks(reader, "offline"))
    return NodeStates(names, offline, drained, properties, excluded, host_of)


def _ranks(reader: Reader, path: str) -> tuple[int, ...]:
    return _decode(reader, path, reader.text(path)) if reader.has(path) else ()


def _decode(reader: Reader, path: str, text: str) -> tuple[int, ...]:
    try:
        return idset.decode(text)
    except ValueError as error:
        raise reader.bad(path, f"RFC 22 idsets ({error})") from None
