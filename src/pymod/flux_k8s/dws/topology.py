# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The topology of a live cluster: from DWS's objects to the rabbitmapping.

Seed 001, "Topology mapping". The SystemConfiguration says which compute nodes each
Rabbit is connected to. How much a Rabbit holds no object says:
``Storage.status.capacity`` is what is free on it. Its size is that, and what was made
there for Servers (:mod:`flux_k8s.dws.holding`). These are not read at one moment: what
was made or deleted meanwhile would count twice if it counted at all.
"""

from __future__ import annotations

from collections import Counter
from typing import Iterable, Mapping, Optional, Sequence

from flux_k8s.dws import holding, mapping
from flux_k8s.dws.holding import Holding
from flux_k8s.dws.mapping import RabbitMapping
from flux_k8s.errors import DWSError
from flux_k8s.json_reader import Reader
from flux_k8s.ports import Json

RABBIT = "Rabbit"
"""The ``type`` of a storage node that is a Rabbit."""


class TopologyError(DWSError):
    """The objects of the cluster give no mapping.

    Attributes:
        problems: what is wrong, one sentence each.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def parse(
    configuration: Json,
    storages: Iterable[Json],
    servers: Iterable[Json],
    *,
    later: Optional[Iterable[Json]] = None,
    system_storage: bool = False,
    sort: bool = True,
) -> RabbitMapping:
    """The mapping of the system that the objects of a cluster describe.

    Args:
        configuration: its SystemConfiguration.
        storages: its Storages; those of other storage nodes do not matter.
        servers: its Servers, in all namespaces, as they were before the Storages were
            read.
        later: as they were after that; None where all is of one moment.
        system_storage: what NnfSystemStorages hold is for jobs, too.
        sort: put Rabbits and compute nodes in natural order, or else leave
            them as the SystemConfiguration has them.

    Raises:
        TopologyError: a Rabbit or a compute node is listed twice, or a Rabbit
            has no capacity.
        BadObject: an object is not what DWS's schema says.
    """
    problems: list[str] = []
    hosts_of = _hosts_of(configuration, problems)
    jobs, system = _made(servers, later)
    if system_storage:
        jobs, system = jobs + system, Counter()
    capacity = _capacities(hosts_of, storages, jobs, problems)
    if problems:
        raise TopologyError(problems)
    return mapping.assemble(hosts_of, capacity, system, sort=sort)


def _made(
    servers: Iterable[Json], later: Optional[Iterable[Json]]
) -> tuple[Counter[str], Counter[str]]:
    """How many bytes of each Rabbit are in use, before and after: for NnfSystemStorages
    (the second), and for all others. What is only asked for is not: it is free as
    well."""
    before = _by_object(servers)
    after = before if later is None else _by_object(later)
    jobs: Counter[str] = Counter()
    system: Counter[str] = Counter()
    for key in before.keys() & after.keys():
        made = Counter(before[key].made) & Counter(after[key].made)
        (system if before[key].system else jobs).update(made)
    return jobs, system


def _by_object(servers: Iterable[Json]) -> dict[tuple[str, object], Holding]:
    """What each Servers holds. Another may have the name of one that was deleted."""
    return {
        (_name("Servers", obj), obj.get("metadata", {}).get("uid")): holding.parse(obj)
        for obj in servers
    }


def _hosts_of(configuration: Json, problems: list[str]) -> dict[str, list[str]]:
    """The compute nodes of each Rabbit, as they are listed."""
    reader = Reader(_name("SystemConfiguration", configuration), configuration)
    hosts_of: dict[str, list[str]] = {}
    rabbit_of: dict[str, str] = {}
    for node in reader.optional_objects("spec.storageNodes"):
        if node.string("type") != RABBIT:
            continue
        rabbit = node.string("name")
        if rabbit in hosts_of:
            problems.append(
                f"{reader.name}: Rabbit {rabbit} is listed twice, expected once"
            )
            continue
        hosts_of[rabbit] = []
        for access in node.optional_objects("computesAccess"):
            host = access.string("name")
            other = rabbit_of.setdefault(host, rabbit)
            if host in hosts_of[rabbit]:
                problems.append(
                    f"{reader.name}: compute node {host} is listed twice under"
                    f" {rabbit}, expected once"
                )
            elif other != rabbit:
                problems.append(
                    f"{reader.name}: compute node {host} is listed under {other} and"
                    f" under {rabbit}, expected one Rabbit"
                )
            else:
                hosts_of[rabbit].append(host)
    if not hosts_of:
        problems.append(f"{reader.name}: spec.storageNodes has no Rabbit")
    return hosts_of


def _capacities(
    rabbits: Iterable[str],
    storages: Iterable[Json],
    taken: Mapping[str, int],
    problems: list[str],
) -> dict[str, int]:
    """What is free on each Rabbit, and what is taken of what jobs may have."""
    found = {}
    for obj in storages:
        reader = Reader(_name("Storage", obj), obj)
        found[reader.string("metadata.name")] = reader
    capacity = {}
    for rabbit in rabbits:
        storage = found.get(rabbit)
        if storage is None:
            problems.append(f"Rabbit {rabbit} has no capacity: it has no Storage")
            continue
        free = storage.optional_integer("status.capacity", minimum=0) or 0
        capacity[rabbit] = free + taken.get(rabbit, 0)
        if not capacity[rabbit]:
            status = storage.optional_string("status.status") or "not known"
            problems.append(
                f"Rabbit {rabbit} has no capacity: status.capacity of its Storage is"
                f" 0 and its status is {status}, expected a number of bytes"
            )
    return capacity


def _name(kind: str, obj: Json) -> str:
    """How errors call an object."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    metadata = metadata if isinstance(metadata, dict) else {}
    return f"{kind} {metadata.get('namespace')}/{metadata.get('name')}"
