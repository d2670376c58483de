# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""A small machine for the tests of sched-rabbit, and requests for what it has."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Mapping, Optional, Sequence

from flux_k8s.formats import rset
from flux_k8s.formats.directives import GIB
from flux_k8s.objects import mapping
from flux_k8s.ports import Json
from flux_k8s.scheduler import rwriter
from flux_k8s.scheduler.pool import Pool, make_chassis
from flux_k8s.scheduler.request import Request, parse

Properties = Mapping[str, Sequence[int]]

NODES, CORES, GPUS = 6, 4, 1
CHUNKS, SSD_SIZE = 4, 25


def topology() -> mapping.RabbitMapping:
    """Two Rabbits with two nodes each; node4 and node5 have none."""
    return mapping.assemble(
        {f"rabbit{r}": [f"node{2 * r}", f"node{2 * r + 1}"] for r in range(2)},
        {f"rabbit{r}": CHUNKS * SSD_SIZE * GIB for r in range(2)},
    )


def resources(properties: Properties = MappingProxyType({})) -> rset.ResourceSet:
    children = {"core": f"0-{CORES - 1}", "gpu": "0"}
    targets = (rset.Target(rank, f"node{rank}", children) for rank in range(NODES))
    having = {name: tuple(ranks) for name, ranks in properties.items()}
    return rset.ResourceSet(tuple(targets), properties=having)


def make_pool(
    properties: Properties = MappingProxyType({}), chunks: int = CHUNKS
) -> Pool:
    R = resources(properties)
    nodes = rwriter.nodes_of(R)
    return Pool(nodes, R.properties, make_chassis(topology(), chunks, nodes))


def core(count: Any = 1) -> Json:
    return {"type": "core", "count": count}


def slot(*children: Json, count: Any = 1) -> Json:
    return {"type": "slot", "count": count, "label": "task", "with": list(children)}


def node(*children: Json, count: Any = 1, **more: Any) -> Json:
    return {"type": "node", "count": count, "with": list(children), **more}


def ssd(count: Any) -> Json:
    return {"type": "ssd", "count": count, "exclusive": True}


def chassis(count: Any, *children: Json) -> Json:
    return {"type": "chassis", "count": count, "with": list(children)}


def rabbit(nodes: Any, gib: int, per_slot: int = 1) -> Json:
    """What the module dws makes of a request for nodes."""
    return slot(node(slot(core()), count=per_slot), ssd(gib), count=nodes)


def request(*resources: Json, constraint: Optional[Json] = None) -> Request:
    system = {"constraints": constraint}
    return parse({"resources": list(resources), "attributes": {"system": system}})
