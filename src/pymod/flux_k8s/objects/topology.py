# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The topology of a live cluster: from objects of DWS to the rabbitmapping.

Seed 001, "Topology mapping". The SystemConfiguration lists the compute nodes of each
Rabbit. No object has the size of a Rabbit: ``Storage.status.capacity`` is the free
part. The size is the sum of that and of the storage that NNF made there for Servers
(:mod:`flux_k8s.objects.storageusage`). Storages and Servers cannot be read at the same
moment. Storage that is made or deleted in between could be counted twice, so it is not
counted.
"""

from __future__ import annotations

from collections import Counter
from typing import Iterable, Mapping, Optional, Sequence

from flux_k8s.errors import DWSError
from flux_k8s.objects import mapping, storageusage
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.objects.servers import Servers
from flux_k8s.objects.storage import Storage
from flux_k8s.objects.storageusage import StorageUsage
from flux_k8s.objects.systemconfiguration import SystemConfiguration
from flux_k8s.ports import Json

RABBIT = "Rabbit"
"""The ``type`` of a storage node that is a Rabbit."""


class TopologyError(DWSError):
    """The objects of the cluster contradict each other, or are incomplete.

    Attributes:
        problems: a sentence for each problem.
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
        configuration: the SystemConfiguration.
        storages: the Storages. Those of storage nodes that are no Rabbits are ignored.
        servers: the Servers of all namespaces, read before the Storages.
        later: the Servers, read after the Storages; None if all objects are of the
            same moment.
        system_storage: count the storage of NnfSystemStorages as storage for jobs.
        sort: put Rabbits and compute nodes in natural order, or else in the order of
            the SystemConfiguration.

    Raises:
        TopologyError: a Rabbit or a compute node is listed twice, or a Rabbit
            has no capacity.
        BadObject: an object is not as DWS's schema says.
    """
    problems: list[str] = []
    hosts_of = _hosts_of(configuration, problems)
    jobs, system = _allocated(servers, later)
    if system_storage:
        jobs, system = jobs + system, Counter()
    capacity = _capacities(hosts_of, storages, jobs, problems)
    if problems:
        raise TopologyError(problems)
    return mapping.assemble(hosts_of, capacity, system, sort=sort)


def _allocated(
    servers: Iterable[Json], later: Optional[Iterable[Json]]
) -> tuple[Counter[str], Counter[str]]:
    """The bytes of storage that exists on each Rabbit both before and after the
    Storages were read: first that of jobs and persistent storage, then that of
    NnfSystemStorages. Storage that is only requested does not exist."""
    before = _by_object(servers)
    after = before if later is None else _by_object(later)
    jobs: Counter[str] = Counter()
    system: Counter[str] = Counter()
    for key in before.keys() & after.keys():
        allocated = Counter(before[key].allocated) & Counter(after[key].allocated)
        (system if before[key].system else jobs).update(allocated)
    return jobs, system


def _by_object(servers: Iterable[Json]) -> dict[tuple[str, object], StorageUsage]:
    """The usage of each Servers object, by its name and UID: a new object may have the
    name of a deleted one."""
    read = map(Servers.read, servers)
    return {(one.name, one.metadata.uid): storageusage.parse(one) for one in read}


def _hosts_of(configuration: Json, problems: list[str]) -> dict[str, list[str]]:
    """The compute nodes of each Rabbit, in the order of the SystemConfiguration. A
    sentence for each contradiction is added to ``problems``."""
    found = SystemConfiguration.read(configuration)
    hosts_of: dict[str, list[str]] = {}
    rabbit_of: dict[str, str] = {}
    for node in found.storage_nodes:
        rabbit = node.name
        if node.type != RABBIT:
            continue
        if rabbit in hosts_of:
            problems.append(
                f"{found.name}: Rabbit {rabbit} is listed twice, expected once"
            )
            continue
        hosts_of[rabbit] = []
        for host in node.hosts:
            other = rabbit_of.setdefault(host, rabbit)
            if host in hosts_of[rabbit]:
                problems.append(
                    f"{found.name}: compute node {host} is listed twice under"
                    f" {rabbit}, expected once"
                )
            elif other != rabbit:
                problems.append(
                    f"{found.name}: compute node {host} is listed under {other} and"
                    f" under {rabbit}, expected one Rabbit"
                )
            else:
                hosts_of[rabbit].append(host)
    if not hosts_of:
        problems.append(f"{found.name}: spec.storageNodes has no Rabbit")
    return hosts_of


def _capacities(
    rabbits: Iterable[str],
    storages: Iterable[Json],
    taken: Mapping[str, int],
    problems: list[str],
) -> dict[str, int]:
    """The bytes of each Rabbit that are for jobs: the free bytes and the ``taken``
    bytes. A sentence for each Rabbit without any is added to ``problems``."""
    found = {each.metadata.name: each for each in map(Storage.read, storages)}
    capacity = {}
    for rabbit in rabbits:
        storage = found.get(rabbit)
        if storage is None:
            problems.append(f"Rabbit {rabbit} has no capacity: it has no Storage")
            continue
        capacity[rabbit] = storage.free + taken.get(rabbit, 0)
        if not capacity[rabbit]:
            problems.append(
                f"Rabbit {rabbit} has no capacity: status.capacity of its Storage is"
                f" 0 and its status is {storage.state or 'not known'}, expected a"
                " number of bytes"
            )
    return capacity
