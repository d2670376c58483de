# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""DirectiveBreakdowns, and allocations of jobs, for tests."""

from __future__ import annotations

from typing import Any, Mapping

from flux_k8s.objects import storageusage
from flux_k8s.objects.servers import Servers
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.allocation import Allocation
from flux_k8s.rules.directivebreakdown.breakdown import (
    STRATEGIES,
    AllocationSet,
    Breakdown,
    Location,
    Reference,
)
from flux_k8s.rules.directivebreakdown.servers import build_servers

RABBIT = {"dataworkflowservices.github.io/storage": "Rabbit"}
OWN = Reference("default", "own-0")


def breakdown(*sets: AllocationSet, pcie: bool = False) -> Breakdown:
    access = {"physical": "mandatory"}
    locations = tuple(Location(OWN, index, access) for index in range(len(sets)))
    return Breakdown(
        "DirectiveBreakdown default/own-0",
        "#DW ...",
        "job",
        sets,
        OWN,
        locations if pcie else (),
    )


def colocated(servers: Json) -> Mapping[str, frozenset[str]]:
    """The Rabbits on which Servers have storage with a colocation key, by key."""
    read = Servers.read(servers)
    return storageusage.with_colocation(storageusage.parse(read), read).colocated


def per_compute(capacity: int, **more: Any) -> AllocationSet:
    return AllocationSet("xfs", STRATEGIES["AllocatePerCompute"], capacity, **more)


def across(capacity: int, label: str = "ost", **more: Any) -> AllocationSet:
    return AllocationSet(label, STRATEGIES["AllocateAcrossServers"], capacity, **more)


def single(capacity: int, **more: Any) -> AllocationSet:
    return AllocationSet("mgt", STRATEGIES["AllocateSingleServer"], capacity, **more)


def allocation(nodes: dict[str, int], ssd: Any = None, **more: Any) -> Allocation:
    """A job with so many nodes on each Rabbit, and GiB of storage: a number
    for each node, or for each Rabbit."""
    hosts = [f"{rabbit}-h{n}" for rabbit in nodes for n in range(nodes[rabbit])]
    if isinstance(ssd, int):
        ssd = {rabbit: ssd * count for rabbit, count in nodes.items()}
    unconnected = more.get("unconnected", ())
    return Allocation((*hosts, *unconnected), nodes, gib_per_rabbit=ssd or {}, **more)


def counts(entry: Json) -> dict[str, int]:
    return {each["name"]: each["allocationCount"] for each in entry["storage"]}


def build_allocation_sets(found: Breakdown, on: Allocation) -> list[Json]:
    """``spec.allocationSets`` of the Servers of a job's only breakdown."""
    return build_servers((found,), on)[0]


def place(entry: AllocationSet, on: Allocation, pcie: bool = False) -> dict[str, int]:
    (made,) = build_allocation_sets(breakdown(entry, pcie=pcie), on)
    return counts(made)
