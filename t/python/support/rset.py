# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""R as Fluxion writes it (RFC 20)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flux_k8s.ports import Json


def vertex(type: str, path: str, **more: Any) -> Json:
    """A vertex as Fluxion writes it into R."""
    metadata = {"type": type, "rank": -1, "paths": {"containment": path}, **more}
    return {"id": path, "metadata": metadata}


def fluxion_r(hosts: dict[str, str], ssd: dict[str, list[int]]) -> Json:
    """R as Fluxion writes it with match-format rv1: ``hosts`` below chassis,
    and the sizes of the ``ssd`` vertices of each chassis."""
    nodes = [vertex("cluster", "/cluster0", id=0)]
    for index, rabbit in enumerate(ssd):
        chassis = f"/cluster0/chassis{index}"
        properties = {"rabbit": rabbit, "ssdcount": "4"}
        nodes.append(vertex("chassis", chassis, id=index, properties=properties))
        for number, size in enumerate(ssd[rabbit]):
            more = {} if size == 1 else {"size": size}
            path = f"{chassis}/ssd{number}"
            nodes.append(vertex("ssd", path, id=number, exclusive=True, **more))
        for host in (host for host, below in hosts.items() if below == rabbit):
            nodes.append(vertex("node", f"{chassis}/{host}", id=0, name=host))
    last = len(hosts) - 1
    ranks = "0" if last == 0 else f"0-{last}"
    return {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": ranks, "children": {"core": "0"}}],
            "nodelist": list(hosts),
            "starttime": 0,
            "expiration": 60,
        },
        "scheduling": {"graph": {"nodes": nodes, "edges": []}},
    }


def in_shorthand(R: Json, whole: Sequence[str] = ()) -> Json:
    """The same R as Fluxion writes it with match-format rv1_shorthand, for a job that
    has the vertices with the paths ``whole`` as a whole."""
    nodes = []
    for entry in R["scheduling"]["graph"]["nodes"]:
        path = entry["metadata"]["paths"]["containment"]
        if path in whole:
            entry = {**entry, "metadata": {**entry["metadata"], "exclusive": True}}
        if not any(path.startswith(f"{above}/") for above in whole):
            nodes.append(entry)
    graph = {"nodes": nodes, "edges": []}
    return {**R, "scheduling": {"graph": graph, "writer": "fluxion:jgf_shorthand"}}
