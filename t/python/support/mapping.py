# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The example system, and objects of a cluster that say the same."""

from __future__ import annotations

from typing import Any, Callable
from unittest.mock import Mock

from flux_k8s.objects.mapping import parse
from flux_k8s.ports import Json
from rabbitsim.dws.topology import Rabbit, Topology, storage
from support.service import TIB

CAPACITY = 30659987046400

EXAMPLE: dict[str, Any] = {
    "computes": {
        **{f"hetchy{n}": "hetchy201" for n in range(1001, 1003)},
        **{f"hetchy{n}": "hetchy202" for n in range(1003, 1019)},
    },
    "rabbits": {
        "hetchy201": {"capacity": CAPACITY, "hostlist": "hetchy[1001-1002]"},
        "hetchy202": {"capacity": CAPACITY, "hostlist": "hetchy[1003-1018]"},
    },
}


HETCHY = Topology.from_mapping(EXAMPLE)


def context_of(mapping: Json, log: Callable[..., object] = print) -> Any:
    """The context of a part of the service that needs no more than a mapping."""
    settings = Mock(mapping=parse(mapping), namespace="default")
    return Mock(settings=settings, log=log)


def storages(system: Topology) -> list[Json]:
    return [storage(rabbit) for rabbit in system.rabbits.values()]


def system_of(hosts_of: dict[str, tuple[str, ...]], capacity: int = TIB) -> Topology:
    return Topology.of([Rabbit(r, capacity, hosts) for r, hosts in hosts_of.items()])


def servers(name: str, **sizes: int) -> Json:
    """A Servers object that holds bytes on some Rabbits."""
    held = {
        rabbit: {"allocationSize": size, "ready": True}
        for rabbit, size in sizes.items()
    }
    return {
        "metadata": {"namespace": "default", "name": name},
        "spec": {"allocationSets": []},
        "status": {
            "ready": True,
            "allocationSets": [{"label": "xfs", "storage": held}],
        },
    }


def of_system(servers: Json) -> Json:
    """Servers that NNF made for an NnfSystemStorage."""
    owner = {"dataworkflowservices.github.io/owner.kind": "NnfSystemStorage"}
    servers["metadata"]["labels"] = owner
    return servers
