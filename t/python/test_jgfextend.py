# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 40: a resource graph to which Rabbits are added."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from flux_k8s.errors import DWSError
from flux_k8s.formats import jgf, rset
from flux_k8s.objects import mapping
from flux_k8s.rules import jgfextend
from support.mapping import EXAMPLE

R: dict[str, Any] = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-17", "children": {"core": "0-95", "gpu": "0-3"}}],
        "nodelist": ["hetchy[1001-1018]"],
    },
}
HETCHY = mapping.parse(EXAMPLE)


def extend(found: Any, cluster: Optional[str] = None) -> Any:
    """The value of the key ``scheduling``, with Rabbits of 18 ``ssd`` each."""
    return jgfextend.extend(rset.parse(found), HETCHY, 18, cluster)


def own_graph(*racks: tuple[str, ...]) -> Any:
    """R with a graph of its own: racks with nodes, which have a property, cores and
    something that nobody knows. The first "rack" is the root."""
    vertices = [vertex("0", "cluster", "/mine", basename="mine")]
    edges = []

    def add(parent: str, path: str, type: str, **more: Any) -> str:
        name = str(len(vertices))
        vertices.append(vertex(name, type, path, **more))
        metadata = {"subsystem": "containment"}
        edges.append({"source": parent, "target": name, "metadata": metadata})
        return name

    for number, hosts in enumerate(racks):
        above, place = "0", "/mine"
        if number:
            place = f"/mine/rack{number}"
            above = add("0", place, "rack", id=number)
        for host in hosts:
            path, own = f"{place}/{host}", {"properties": {"mine": host}}
            node = add(above, path, "node", name=host, rank=int(host[-2:]) - 1, **own)
            add(node, f"{path}/core0", "core", id=0, rank=int(host[-2:]) - 1)
            add(node, f"{path}/frob0", "frob", id=0, rank=-1)
    return {**R, "scheduling": {"graph": {"nodes": vertices, "edges": edges}}}


def vertex(number: str, kind: str, path: str, **more: Any) -> Any:
    metadata = {"type": kind, **more, "paths": {"containment": path}}
    return {"id": number, "metadata": metadata}


HOSTS = tuple(EXAMPLE["computes"])
FIRST, SECOND = HOSTS[:2], HOSTS[2:]


@pytest.mark.parametrize(
    "racks",
    [(HOSTS,), ((), FIRST, SECOND), ((), HOSTS), (FIRST, SECOND)],
    ids=["flat", "a rack for each", "one rack", "mixed"],
)
def test_a_graph_that_is_there_is_extended(racks: tuple[tuple[str, ...], ...]) -> None:
    before = own_graph(*racks)
    found = extend(before)
    graph = jgf.parse(found)
    assert graph.rabbit_of == EXAMPLE["computes"]
    assert graph.ssd == {"hetchy201": 28548, "hetchy202": 28548}
    vertices = {v["id"]: v["metadata"] for v in found["graph"]["nodes"]}
    for old in before["scheduling"]["graph"]["nodes"]:
        new = vertices[old["id"]]
        for key in old["metadata"].keys() - {"paths", "properties"}:
            assert new[key] == old["metadata"][key]
        assert (old["metadata"].get("properties") or {}).items() <= (
            new.get("properties") or {}
        ).items()
    edges = found["graph"]["edges"]
    assert len(edges) == len(vertices) - 1 == len({e["target"] for e in edges})
    for edge in edges:
        above, below = (
            vertices[edge[end]]["paths"]["containment"] for end in ("source", "target")
        )
        assert below.rpartition("/")[0] == above
        assert edge["metadata"] == {"subsystem": "containment"}
    paths = [metadata["paths"]["containment"] for metadata in vertices.values()]
    assert len(set(paths)) == len(paths)
    assert extend({**R, "scheduling": found}) == found


def test_the_first_chassis_below_a_vertex_has_number_0() -> None:
    vertices = extend(own_graph(HOSTS))["graph"]["nodes"]
    ids = {v["metadata"]["id"] for v in vertices if v["metadata"]["type"] == "chassis"}
    assert 0 in ids


def changed(*path: Any, value: Any = ...) -> Any:
    """A flat graph of which something is changed, or left out."""
    found = own_graph(HOSTS)
    *above, last = path
    place = found["scheduling"]
    for step in above:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return found


@pytest.mark.parametrize(
    ("found", "cluster", "problem"),
    [
        (
            own_graph((), HOSTS[:1], HOSTS[1:]),
            None,
            "the nodes of hetchy201 are below /mine/rack1 and /mine/rack2 in R's"
            " graph, expected all of them directly below one vertex",
        ),
        (own_graph(HOSTS), "yours", "the root of R's graph is /mine, not /yours"),
        (
            changed("graph", "nodes", 1, "metadata", "rank", value=1),
            None,
            f"rank 1 is {HOSTS[0]} in R's graph, and {HOSTS[1]} in R itself",
        ),
        (changed("writer", value="another"), None, 'R: scheduling.writer is "another"'),
        (
            changed("graph", "nodes", 3, "id", value="x"),
            None,
            'R: scheduling.graph.nodes[3].id is "x"',
        ),
        (changed("graph", "edges", 3), None, "R: scheduling.graph.edges is"),
    ],
)
def test_a_graph_that_cannot_be_extended_is_refused(
    found: Any, cluster: Optional[str], problem: str
) -> None:
    with pytest.raises(DWSError) as caught:
        extend(found, cluster)
    assert str(caught.value).startswith(problem)
