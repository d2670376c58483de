# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The table ``[resource]`` of a Flux configuration.

Each entry of ``resource.config`` adds resources to the hosts that it lists
(flux-config-resource(5)). The rank of a host is its place among all hosts, in the
order in which they are first listed. With a ``[bootstrap]`` table the rank is the
host's place in ``bootstrap.hosts`` instead (flux-config-bootstrap(5)).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Optional

from flux_k8s.errors import BadObject
from flux_k8s.formats import hostlist, idset, rset
from flux_k8s.json_reader import Reader

ENTRY_KEYS = ("hosts", "cores", "gpus", "properties")


@dataclass(frozen=True)
class ResourceConfig:
    """The resources of an instance.

    Attributes:
        resources: all resources, the excluded ones included.
        excluded: the hosts that ``resource.exclude`` withholds from scheduling.
    """

    resources: rset.ResourceSet
    excluded: frozenset[str]


@dataclass
class _Host:
    """The resources of one host, from the entries that were read so far."""

    cores: set[int] = field(default_factory=set)
    gpus: set[int] = field(default_factory=set)
    properties: list[str] = field(default_factory=list)


def parse(tables: Any, name: str) -> ResourceConfig:
    """Read the tables ``resource`` and ``bootstrap`` of a configuration. Errors call
    the configuration ``name`` (a path).

    Raises:
        BadObject: ``resource.config`` is missing or not as Flux wants it; a
            host has no cores, or has no rank; ``resource.exclude`` names a host or
            a rank that does not exist.
    """
    reader = Reader(name, tables)
    hosts: dict[str, _Host] = {}
    for entry in reader.objects("resource.config"):
        _add(entry, hosts)
    if not hosts:
        raise reader.bad("resource.config", "at least one entry")
    for host, found in hosts.items():
        if not found.cores:
            raise reader.bad("resource.config", f"cores for all hosts; {host} has none")
    ranks = _ranks(reader, hosts)
    by_rank = {ranks[host]: host for host in hosts}
    resources = rset.ResourceSet(
        targets=tuple(
            rset.Target(rank, by_rank[rank], _children(hosts[by_rank[rank]]))
            for rank in sorted(by_rank)
        ),
        properties=_properties(hosts, ranks),
    )
    return ResourceConfig(resources, _excluded(reader, by_rank))


def _add(entry: Reader, hosts: dict[str, _Host]) -> None:
    """Apply one entry of ``resource.config``."""
    for key in entry.value:
        if key not in ENTRY_KEYS:
            place = f"a key of {entry.path}"
            raise BadObject(entry.name, place, key, f"one of {', '.join(ENTRY_KEYS)}")
    names = hostlist.read(entry, "hosts")
    if not names:
        raise entry.bad("hosts", "at least one host")
    cores, gpus = _ids(entry, "cores"), _ids(entry, "gpus")
    properties = entry.optional_strings("properties")
    for property in properties:
        if not rset.is_property(property):
            illegal = " ".join(rset.ILLEGAL_IN_PROPERTY)
            raise entry.bad("properties", f"names without any of {illegal}")
    for host in names:
        found = hosts.setdefault(host, _Host())
        found.cores.update(cores)
        found.gpus.update(gpus)
        found.properties += properties


def _ids(entry: Reader, key: str) -> tuple[int, ...]:
    return idset.read(entry, key) if entry.has(key) else ()


def _ranks(reader: Reader, hosts: Iterable[str]) -> Mapping[str, int]:
    """The rank of each host."""
    if not reader.has("bootstrap.hosts"):
        return {host: rank for rank, host in enumerate(hosts)}
    brokers: dict[str, int] = {}
    for entry in reader.objects("bootstrap.hosts"):
        for host in hostlist.read(entry, "host"):
            brokers.setdefault(host, len(brokers))
    for host in hosts:
        if host not in brokers:
            raise reader.bad(
                "bootstrap.hosts", f"all hosts of resource.config; {host} is not there"
            )
    return brokers


def _children(host: _Host) -> dict[str, str]:
    children = {"core": idset.encode(host.cores)}
    if host.gpus:
        children["gpu"] = idset.encode(host.gpus)
    return children


def _properties(
    hosts: Mapping[str, _Host], ranks: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for host, entry in hosts.items():
        for property in entry.properties:
            found.setdefault(property, set()).add(ranks[host])
    return {name: tuple(sorted(ids)) for name, ids in found.items()}


def _excluded(reader: Reader, by_rank: Mapping[int, str]) -> frozenset[str]:
    """The hosts of ``resource.exclude``: ranks, or else names of hosts."""
    text = reader.optional_string("resource.exclude")
    if text is None:
        return frozenset()
    names = _decoded(text, by_rank)
    if names is None:
        names = hostlist.read(reader, "resource.exclude")
    known = set(by_rank.values())
    for host in names:
        if host not in known:
            raise reader.bad(
                "resource.exclude", f"hosts or ranks of resource.config; not {host}"
            )
    return frozenset(names)


def _decoded(text: str, by_rank: Mapping[int, str]) -> Optional[tuple[str, ...]]:
    """The hosts of an idset of ranks; None when ``text`` is no idset."""
    try:
        ranks = idset.decode(text)
    except ValueError:
        return None
    return tuple(by_rank.get(rank, f"rank {rank}") for rank in ranks)
