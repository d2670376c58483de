# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The hardware that the stand-in pretends to have, and the objects for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flux_k8s.ports import DWS_GROUP, Json

DM_NAMESPACE = "nnf-dm-system"
RULE_NAMESPACE = "dws-system"
RABBIT_LABEL = f"{DWS_GROUP}/storage"
TIB = 1 << 40


@dataclass(frozen=True)
class Rabbit:
    """A Rabbit: its compute nodes, its size in bytes, its labels."""

    name: str
    capacity: int
    computes: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Topology:
    """Rabbits by name; ``rabbit_of`` maps each of their compute nodes to its
    Rabbit; ``external`` are compute nodes without one."""

    rabbits: Mapping[str, Rabbit]
    rabbit_of: Mapping[str, str]
    external: tuple[str, ...] = ()

    @classmethod
    def of(cls, rabbits: Sequence[Rabbit], external: Sequence[str] = ()) -> Topology:
        rabbit_of: dict[str, str] = {}
        for rabbit in rabbits:
            for compute in rabbit.computes:
                if compute in rabbit_of:
                    raise ValueError(
                        f"compute node {compute} is below {rabbit_of[compute]} and "
                        f"{rabbit.name}, expected one Rabbit"
                    )
                rabbit_of[compute] = rabbit.name
        return cls({r.name: r for r in rabbits}, rabbit_of, tuple(external))

    @classmethod
    def regular(
        cls,
        nodes: int = 4,
        rabbits: int = 2,
        capacity: int = 30 * TIB,
        node_prefix: str = "compute-",
        rabbit_prefix: str = "rabbit-",
    ) -> Topology:
        """``nodes`` compute nodes, spread evenly over ``rabbits`` Rabbits of
        ``capacity`` bytes each."""
        if rabbits < 1 or nodes < rabbits:
            raise ValueError(
                f"{nodes} nodes on {rabbits} Rabbits, expected at least one Rabbit "
                "and at least one node for each"
            )
        names = [f"{node_prefix}{i + 1:02d}" for i in range(nodes)]
        edges = [nodes * i // rabbits for i in range(rabbits + 1)]
        return cls.of(
            [
                Rabbit(
                    f"{rabbit_prefix}{i + 1:02d}",
                    capacity,
                    tuple(names[edges[i] : edges[i + 1]]),
                )
                for i in range(rabbits)
            ]
        )

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Mapping[str, object]]) -> Topology:
        """From a rabbitmapping."""
        below: dict[str, list[str]] = {name: [] for name in mapping["rabbits"]}
        for compute, rabbit in mapping["computes"].items():
            if rabbit not in below:
                raise ValueError(
                    f"rabbitmapping: computes.{compute} is {rabbit!r}, expected one "
                    "of the names under rabbits"
                )
            below[str(rabbit)].append(compute)
        rabbits = []
        for name, entry in mapping["rabbits"].items():
            size = entry.get("capacity") if isinstance(entry, Mapping) else None
            if not isinstance(size, int):
                raise ValueError(
                    f"rabbitmapping: rabbits.{name}.capacity is {size!r}, expected "
                    "bytes"
                )
            rabbits.append(Rabbit(name, size, tuple(below[name])))
        return cls.of(rabbits)

    def mapping(self) -> Json:
        """The ``computes`` half of a rabbitmapping, and the Rabbits' sizes."""
        return {
            "computes": dict(self.rabbit_of),
            "rabbits": {n: {"capacity": r.capacity} for n, r in self.rabbits.items()},
        }


def namespaces(topology: Topology) -> list[str]:
    """The namespaces that the controllers use: one per node, and their own."""
    nodes = [*topology.rabbits, *topology.rabbit_of, *topology.external]
    return ["default", RULE_NAMESPACE, DM_NAMESPACE, *nodes]


def storage(rabbit: Rabbit) -> Json:
    """The Storage object of a Rabbit, healthy and empty."""
    return {
        "metadata": {
            "name": rabbit.name,
            "namespace": "default",
            "labels": {RABBIT_LABEL: "Rabbit", **rabbit.labels},
        },
        "spec": {"state": "Enabled", "mode": "Live"},
        "status": storage_status(rabbit, rabbit.capacity),
    }


def storage_status(
    rabbit: Rabbit, free: int, status: str = "Ready", lost: Sequence[str] = ()
) -> Json:
    """``status`` of a Storage.

    Args:
        free: bytes that are not allocated.
        status: the Rabbit's condition.
        lost: compute nodes without a PCIe connection to it.
    """
    devices = 16
    return {
        "access": {
            "protocol": "PCIe",
            "servers": [{"name": rabbit.name, "status": status}],
            "computes": [
                {"name": name, "status": "Offline" if name in lost else "Ready"}
                for name in rabbit.computes
            ],
        },
        "capacity": free,
        "devices": [
            {
                "capacity": rabbit.capacity // devices,
                "firmwareVersion": "1TCRS104",
                "model": "KIOXIA KCM7DRJE1T92",
                "serialNumber": f"MOCK-{rabbit.name}-{slot}",
                "slot": str(slot + 8),
                "status": "Ready",
                "wearLevel": 0,
            }
            for slot in range(devices)
        ],
        "status": status,
        "type": "NVMe",
    }


def system_configuration(topology: Topology) -> Json:
    return {
        "metadata": {"name": "default", "namespace": "default"},
        "spec": {
            "externalComputeNodes": [{"name": name} for name in topology.external],
            "ports": ["5000-5999"],
            "portsCooldownInSeconds": 60,
            "storageNodes": [
                {
                    "computesAccess": [
                        {"index": index, "name": name}
                        for index, name in enumerate(rabbit.computes)
                    ],
                    "name": rabbit.name,
                    "type": "Rabbit",
                }
                for rabbit in topology.rabbits.values()
            ],
        },
    }


def system_status(topology: Topology) -> Json:
    nodes = [*topology.rabbits, *topology.rabbit_of, *topology.external]
    return {
        "metadata": {"name": "default", "namespace": "default"},
        "data": {"nodes": {name: "Enabled" for name in nodes}},
    }
