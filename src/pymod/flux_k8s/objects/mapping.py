# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The rabbitmapping file: the compute nodes that each Rabbit is connected to.

Seed 001, "Topology mapping". The file lists each connection twice, once for the
compute node and once for the Rabbit. Both lists must agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Collection, Iterable, Mapping, Optional, Sequence

from flux_k8s.errors import BadObject
from flux_k8s.formats import hostlist
from flux_k8s.json_reader import Reader

DEFAULT_NAME = "the rabbit mapping"
"""The name of the mapping in errors, unless the caller has a better name (a path)."""

SYSTEM = "system"
"""A key of the file: bytes that storage of the system uses, and that ``capacity`` does
not include. Older mappings do not have this key."""


@dataclass(frozen=True)
class RabbitMapping:
    """The PCIe connections of a system.

    Attributes:
        rabbits: the names of all Rabbits. A mapping from a file has them sorted by name
            and number.
    """

    rabbits: tuple[str, ...]
    _rabbit_of: Mapping[str, str]
    _hosts_of: Mapping[str, tuple[str, ...]]
    _capacity: Mapping[str, int]
    _system: Mapping[str, int] = field(default_factory=dict)

    def rabbit_of(self, host: str) -> Optional[str]:
        """The Rabbit that a compute node is connected to; None without one."""
        return self._rabbit_of.get(host)

    def rabbits_of(self, hosts: Collection[str]) -> dict[str, Optional[str]]:
        """The Rabbit of each host, as in :meth:`rabbit_of`."""
        return dict(zip(hosts, map(self._rabbit_of.get, hosts)))

    def has(self, rabbit: str) -> bool:
        """Whether the mapping knows this Rabbit."""
        return rabbit in self._capacity

    def rabbits_among(self, hosts: Iterable[str]) -> frozenset[str]:
        """The Rabbits among nodes of Flux."""
        return self._rabbits_alone.intersection(hosts)

    @cached_property
    def _rabbits_alone(self) -> frozenset[str]:
        """The Rabbits that are no compute nodes of a Rabbit as well."""
        return frozenset(self.rabbits).difference(self._rabbit_of)

    @cached_property
    def hosts(self) -> frozenset[str]:
        """All compute nodes that are connected to a Rabbit."""
        return frozenset(self._rabbit_of)

    def hosts_of(self, rabbit: str) -> tuple[str, ...]:
        """The compute nodes of a Rabbit, in the order of its hostlist; none
        for a Rabbit that the mapping lacks."""
        return self._hosts_of.get(rabbit, ())

    def hosts_below(self, rabbits: Iterable[str]) -> frozenset[str]:
        """The compute nodes of some Rabbits: those near to what is on these."""
        return frozenset().union(*map(self.hosts_of, rabbits))

    def capacity(self, rabbit: str) -> int:
        """The bytes of a Rabbit that are for jobs; 0 for one that the mapping
        lacks."""
        return self._capacity.get(rabbit, 0)

    def size(self, rabbit: str) -> int:
        """The size of a Rabbit's storage in bytes: its capacity, and the bytes that
        storage of the system uses."""
        return self.capacity(rabbit) + self._system.get(rabbit, 0)

    def to_json(self) -> dict[str, Any]:
        """The contents of a rabbitmapping file."""
        return {
            "computes": dict(self._rabbit_of),
            "rabbits": {rabbit: self._entry(rabbit) for rabbit in self.rabbits},
        }

    def _entry(self, rabbit: str) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "capacity": self._capacity[rabbit],
            "hostlist": hostlist.encode(self._hosts_of[rabbit]),
        }
        if self._system.get(rabbit):
            entry[SYSTEM] = self._system[rabbit]
        return entry


def assemble(
    hosts_of: Mapping[str, Sequence[str]],
    capacity: Mapping[str, int],
    system: Optional[Mapping[str, int]] = None,
    *,
    sort: bool = True,
) -> RabbitMapping:
    """Make a mapping.

    Args:
        hosts_of: the compute nodes of each Rabbit. None may be listed twice.
        capacity: the bytes of each Rabbit that are for jobs.
        system: the bytes of each Rabbit that storage of the system uses.
        sort: whether to sort Rabbits and nodes by name and number.
    """

    def ordered(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=hostlist.natural_key) if sort else names)

    rabbit_of = {host: name for name, hosts in hosts_of.items() for host in hosts}
    return RabbitMapping(
        ordered(hosts_of),
        {host: rabbit_of[host] for host in ordered(rabbit_of)},
        {name: ordered(hosts) for name, hosts in hosts_of.items()},
        capacity,
        system or {},
    )


def parse(obj: Any, name: str = DEFAULT_NAME) -> RabbitMapping:
    """Read the JSON of a rabbitmapping file. Errors call it ``name``.

    Raises:
        BadObject: a field is missing or has the wrong type; a capacity is
            negative; a compute node is listed twice, or under two Rabbits; or
            ``computes`` and ``rabbits`` differ.
    """
    reader = Reader(name, obj)
    computes = reader.object("computes").value
    for host, rabbit in computes.items():
        if not isinstance(rabbit, str):
            raise BadObject(name, f"computes.{host}", rabbit, "the name of a Rabbit")
    hosts_of: dict[str, tuple[str, ...]] = {}
    capacity: dict[str, int] = {}
    system: dict[str, int] = {}
    rabbit_of: dict[str, str] = {}
    for rabbit, entry in reader.object("rabbits").value.items():
        fields = Reader(name, entry, f"rabbits.{rabbit}")
        capacity[rabbit] = fields.integer("capacity", minimum=0)
        system[rabbit] = fields.optional_integer(SYSTEM, minimum=0) or 0
        hosts_of[rabbit] = hostlist.read(fields, "hostlist")
        for host in hosts_of[rabbit]:
            if host in rabbit_of:
                raise fields.bad(
                    "hostlist",
                    f"no node of another entry, but {host} is also"
                    f" listed for {rabbit_of[host]}",
                )
            rabbit_of[host] = rabbit
            if computes.get(host) != rabbit:
                raise BadObject(
                    name,
                    f"computes.{host}",
                    computes.get(host),
                    f'"{rabbit}", as in rabbits.{rabbit}.hostlist',
                )
    for host, rabbit in computes.items():
        if host not in rabbit_of:
            raise BadObject(
                name,
                f"computes.{host}",
                rabbit,
                "a Rabbit whose hostlist has this node",
            )
    rabbits = tuple(sorted(hosts_of, key=hostlist.natural_key))
    return RabbitMapping(rabbits, rabbit_of, hosts_of, capacity, system)
