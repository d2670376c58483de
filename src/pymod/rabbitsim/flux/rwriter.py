# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""R, the resource set that a job got (RFC 20), as Fluxion writes it.

The ``scheduling`` key is what ``match-format = "rv1"`` gives: a graph of the
vertices that the job got and of those above them, children first. One thing is
shorter: adjacent ``ssd`` vertices of 1 GiB are written as one, whose ``size`` is their
number, as Fluxion writes a vertex that is larger than one unit.
"""

from __future__ import annotations

import math
import re
from typing import Iterator, Optional

from flux_k8s.formats import hostlist, idset
from flux_k8s.ports import Json
from rabbitsim.flux.pool import Chassis, Grant, Node, Pool

CLUSTER = "/cluster0"
_NUMBERED = re.compile(r"(.*?)(\d+)")


def write(pool: Pool, grant: Grant, starttime: float, duration: float) -> Json:
    """R for a grant. ``duration`` in seconds; 0 for no limit."""
    held: dict[int, Json] = {}
    for part in grant:
        if part.type in ("core", "gpu"):
            ids = held.setdefault(part.owner, {}).setdefault(part.type, [])
            ids.extend(part.ids)
    ranks = sorted(held)
    return {
        "version": 1,
        "execution": {
            "R_lite": _r_lite(held, ranks),
            "nodelist": [hostlist.encode(pool.nodes[rank].host for rank in ranks)],
            "starttime": int(starttime),
            "expiration": int(starttime) + math.ceil(duration) if duration > 0 else 0,
        },
        "scheduling": {"graph": _Graph(pool, grant, held).as_json()},
    }


def _r_lite(held: dict[int, Json], ranks: list[int]) -> list[Json]:
    groups: dict[str, tuple[dict[str, str], list[int]]] = {}
    for rank in ranks:
        children: dict[str, str] = {
            type: idset.encode(held[rank][type])
            for type in ("core", "gpu")
            if type in held[rank]
        }
        groups.setdefault(str(children), (children, []))[1].append(rank)
    return [
        {"rank": idset.encode(members), "children": children}
        for children, members in groups.values()
    ]


class _Graph:
    """The JSON graph of a grant."""

    def __init__(self, pool: Pool, grant: Grant, held: dict[int, Json]) -> None:
        self._pool = pool
        self._held = held
        self._nodes: list[Json] = []
        self._edges: list[Json] = []
        self._ssds: dict[int, list[int]] = {}
        for part in grant:
            if part.type == "ssd":
                self._ssds.setdefault(part.owner, []).extend(part.ids)
        self._below: dict[Optional[int], list[int]] = {}
        for rank in sorted(held):
            self._below.setdefault(pool.nodes[rank].chassis, []).append(rank)

    def as_json(self) -> Json:
        chassis = self._pool.chassis
        used = {*self._below, *self._ssds}
        for index in sorted(index for index in used if index is not None):
            self._chassis(chassis[index])
        self._chassis(None)
        self._add("cluster", "0", 0, -1, CLUSTER, basename="cluster")
        return {"nodes": self._nodes, "edges": self._edges}

    def _chassis(self, chassis: Optional[Chassis]) -> None:
        """A chassis with what is below it (None: nodes without a Rabbit)."""
        index = None if chassis is None else chassis.index
        ranks = self._below.get(index, [])
        vertex, path = "0", CLUSTER
        if chassis is not None:
            vertex = f"chassis{chassis.index}"
            path = f"{CLUSTER}/chassis{chassis.index}"
        for rank in ranks:
            self._node(self._pool.nodes[rank], vertex, path)
        if chassis is None:
            return
        ssds = sorted(self._ssds.get(chassis.index, []))
        runs = _runs(ssds)
        if chassis.ssd_size > 1:
            runs = ((number, chassis.ssd_size) for number in ssds)
        for first, size in runs:
            ssd = f"{vertex}.ssd{first}"
            more = {"exclusive": True, "size": size}
            self._add("ssd", ssd, first, -1, f"{path}/ssd{first}", **more)
            self._edge(vertex, ssd)
        if ranks or chassis.index in self._ssds:
            properties = {"rabbit": chassis.rabbit}
            self._add("chassis", vertex, chassis.index, -1, path, properties=properties)
            self._edge("0", vertex)

    def _node(self, node: Node, parent: str, above: str) -> None:
        path = f"{above}/{node.host}"
        vertex = f"node{node.rank}"
        for type in ("core", "gpu"):
            for id in self._held[node.rank].get(type, []):
                child = f"{vertex}.{type}{id}"
                self._add(
                    type, child, id, node.rank, f"{path}/{type}{id}", exclusive=True
                )
                self._edge(vertex, child)
        more: Json = {}
        if len(self._held[node.rank].get("core", [])) == node.cores:
            more["exclusive"] = True
        names, id = _names(node)
        self._add(node.type, vertex, id, node.rank, path, **names, **more)
        self._edge(parent, vertex)

    def _add(
        self, type: str, vertex: str, id: int, rank: int, path: str, **more: object
    ) -> None:
        metadata: Json = {"type": type, "id": id, "rank": rank, **more}
        metadata["paths"] = {"containment": path}
        self._nodes.append({"id": vertex, "metadata": metadata})

    def _edge(self, source: str, target: str) -> None:
        self._edges.append({"source": source, "target": target})


def _names(node: Node) -> tuple[Json, int]:
    """How a node is named: ``basename`` and ``id`` where they make the name,
    else ``name`` as well."""
    match = _NUMBERED.fullmatch(node.host)
    if match is None:
        return {"name": node.host}, -1
    names: Json = {"basename": match.group(1)}
    if match.group(2) != str(int(match.group(2))):
        names["name"] = node.host
    return names, int(match.group(2))


def _runs(ids: list[int]) -> Iterator[tuple[int, int]]:
    """Runs of adjacent numbers: the first, and how many."""
    start = 0
    for i in range(1, len(ids) + 1):
        if i == len(ids) or ids[i] != ids[i - 1] + 1:
            yield ids[start], i - start
            start = i
