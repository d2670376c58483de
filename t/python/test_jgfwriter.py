# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 40: the resource graph that we write."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.formats import hostlist, idset, jgf, rset
from flux_k8s.formats.directives import GIB
from flux_k8s.objects import mapping
from flux_k8s.objects.mapping import RabbitMapping
from flux_k8s.ports import Json
from flux_k8s.rules import jgfwriter
from flux_k8s.rules.directivebreakdown.allocation import gib_per_rabbit, job_allocation
from support.mapping import EXAMPLE

HETCHY = mapping.parse(EXAMPLE)


def resources(hosts: tuple[str, ...], **execution: Any) -> rset.ResourceSet:
    """R for some hosts, with two cores and a GPU each."""
    children = {"core": "0-1", "gpu": "0"}
    return rset.parse(
        {
            "version": 1,
            "execution": {
                "R_lite": [
                    {"rank": idset.encode(range(len(hosts))), "children": children}
                ],
                "nodelist": [hostlist.encode(hosts)],
                **execution,
            },
        }
    )


SYSTEM = resources(hostlist.decode("hetchy[1001-1018]"))


def write(R: rset.ResourceSet, system: RabbitMapping = HETCHY, **more: Any) -> Json:
    """The graph that is written, read as JSON."""
    scheduling: Json = json.loads("".join(jgfwriter.scheduling(R, system, **more)))
    return scheduling


def by_path(scheduling: Json) -> dict[str, Json]:
    """The vertices' metadata."""
    found = [node["metadata"] for node in scheduling["graph"]["nodes"]]
    return {metadata["paths"]["containment"]: metadata for metadata in found}


def test_a_rabbit_is_a_chassis_with_its_nodes_and_its_storage_below() -> None:
    vertices = by_path(write(SYSTEM, cluster="hetchy"))
    assert vertices["/hetchy"]["type"] == "cluster"
    chassis = vertices["/hetchy/chassis0"]
    assert chassis["properties"] == {"rabbit": "hetchy201", "ssdcount": "36"}
    below = [p for p in vertices if p.startswith("/hetchy/chassis0/")]
    assert sorted(p.rpartition("/")[2] for p in below if p.count("/") == 3) == sorted(
        [*(f"ssd{n}" for n in range(36)), "hetchy1001", "hetchy1002"]
    )
    ssd = vertices["/hetchy/chassis0/ssd0"]
    assert (ssd["type"], ssd["unit"], ssd["size"]) == ("ssd", "GiB", 793)
    node = vertices["/hetchy/chassis0/hetchy1002"]
    assert (node["type"], node["name"], node["rank"]) == ("node", "hetchy1002", 1)
    for name in ("core0", "core1", "gpu0"):
        leaf = vertices[f"/hetchy/chassis0/hetchy1002/{name}"]
        assert f"{leaf['type']}{leaf['id']}" == name
        assert leaf["rank"] == 1


def test_a_rabbit_that_runs_a_broker_is_a_storage_node_in_its_chassis() -> None:
    """As in Fluxion's graph of hetchy: requests for nodes pass it by."""
    R = resources(("hetchy1001", "hetchy201"))
    vertex = by_path(write(R))["/cluster0/chassis0/hetchy201"]
    assert vertex["type"] == "storage_node"
    assert vertex["properties"] == {"rabbit": ""}
    assert jgf.parse(write(R)).rabbit_of == {"hetchy1001": "hetchy201"}


def test_the_properties_of_r_are_on_the_node_vertices() -> None:
    hosts = ("hetchy1001", "hetchy1002", "login1")
    R = resources(hosts, properties={"batch": "0,2", "mi300@gpu": "2", "é": "1"})
    vertices = by_path(write(R))
    assert vertices["/cluster0/chassis0/hetchy1001"]["properties"] == {"batch": ""}
    assert vertices["/cluster0/chassis0/hetchy1002"]["properties"] == {"é": ""}
    assert vertices["/cluster0/login1"]["properties"] == {"batch": "", "mi300@gpu": ""}


def test_excluded_hosts_are_not_in_the_graph_but_stay_in_r() -> None:
    text = jgfwriter.scheduling(SYSTEM, HETCHY, excluded=["hetchy1002"])
    document = json.loads("".join(jgfwriter.document(SYSTEM, text)))
    assert not any("hetchy1002" in path for path in by_path(document["scheduling"]))
    assert rset.parse(document).hosts == SYSTEM.hosts


def test_r_keeps_all_it_has_but_its_old_graph() -> None:
    R = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "3", "children": {"core": "0-1"}}],
            "nodelist": ["hetchy1003"],
            "nslots": 1,
            "properties": {"batch": "3"},
            "starttime": 10.0,
            "expiration": 20.5,
        },
        "scheduling": {"graph": {"nodes": [], "edges": []}},
    }
    text = jgfwriter.scheduling(rset.parse(R), HETCHY)
    document = json.loads("".join(jgfwriter.document(rset.parse(R), text)))
    assert document["execution"] == R["execution"]
    graph = jgf.parse(document["scheduling"])
    assert graph.rabbit_of == {"hetchy1003": "hetchy202"}


@st.composite
def systems(draw: st.DrawFn) -> tuple[rset.ResourceSet, RabbitMapping, int]:
    """Some Rabbits and other nodes, with all kinds of cores, and a number of
    chunks."""
    names = st.sampled_from(
        [f"{p}{n:0{w}d}" for p in "ab" for n in range(20) for w in (1, 3)]
    )
    hosts = draw(st.lists(names, unique=True, min_size=1, max_size=20))
    owner = draw(st.lists(st.integers(0, 4), min_size=len(hosts), max_size=len(hosts)))
    hosts_of: dict[str, list[str]] = {f"rabbit{n}": [] for n in range(1, 5)}
    for host, number in zip(hosts, owner):
        if number:
            hosts_of[f"rabbit{number}"].append(host)
    chunks = draw(st.integers(1, 12))
    size = st.integers(chunks * GIB, 2**45)
    system = mapping.assemble(hosts_of, {rabbit: draw(size) for rabbit in hosts_of})
    ids = st.sets(st.integers(0, 130), min_size=1, max_size=12).map(idset.encode)
    ranks = draw(st.permutations(range(len(hosts))))
    targets = [
        rset.Target(
            rank, host, {"core": draw(ids), **({"gpu": "0-3"} if rank % 2 else {})}
        )
        for rank, host in zip(ranks, hosts)
    ]
    ordered = tuple(sorted(targets, key=lambda target: target.rank))
    return rset.ResourceSet(ordered), system, chunks


@given(systems())
def test_a_written_graph_can_be_read_again_and_is_a_tree_of_all_of_r(
    case: tuple[rset.ResourceSet, RabbitMapping, int],
) -> None:
    R, system, chunks = case
    text = jgfwriter.scheduling(R, system, chunks=chunks)
    document = json.loads("".join(jgfwriter.document(R, text)))
    read = rset.parse(document)
    assert read.targets == R.targets
    graph = jgf.parse(document["scheduling"])
    assert dict(graph.rabbit_of) == {host: system.rabbit_of(host) for host in R.hosts}
    assert graph.ssd == {
        rabbit: system.capacity(rabbit) // GIB // chunks * chunks
        for rabbit in system.rabbits
    }
    assert gib_per_rabbit(read, system) == graph.ssd
    counts = job_allocation(read, system).nodes_per_rabbit
    assert counts == {rabbit: len(system.hosts_of(rabbit)) for rabbit in system.rabbits}
    # Its paths follow its edges.
    written = document["scheduling"]["graph"]
    paths = {n["id"]: n["metadata"]["paths"]["containment"] for n in written["nodes"]}
    assert len(paths) == len(set(paths.values())) == len(written["nodes"])
    assert len({int(id) for id in paths}) == len(paths)
    parents = {edge["target"]: edge["source"] for edge in written["edges"]}
    assert len(parents) == len(written["edges"]) == len(paths) - 1
    for child, parent in parents.items():
        assert paths[child].rpartition("/")[0] == paths[parent]
    found: dict[tuple[int, str], set[int]] = {}
    for node in written["nodes"]:
        metadata = node["metadata"]
        name = metadata.get("name") or f"{metadata['type']}{metadata['id']}"
        assert paths[node["id"]].rpartition("/")[2] == name
        if metadata["type"] in ("core", "gpu"):
            key = (metadata["rank"], metadata["type"])
            found.setdefault(key, set()).add(metadata["id"])
    assert found == {
        (target.rank, type): set(idset.decode(ids))
        for target in R.targets
        for type, ids in target.children.items()
    }


def test_a_graph_is_written_in_pieces_no_larger_than_a_node_needs() -> None:
    hosts = tuple(f"n{n}" for n in range(1000))
    pieces = list(jgfwriter.scheduling(resources(hosts), HETCHY))
    assert max(map(len, pieces)) < 5000 < len("".join(pieces)) // 50


TINY = mapping.assemble({"r1": ()}, {"r1": GIB - 1})
CHUNKS = (
    "hetchy201 has 28554 GiB, which cannot be cut into {} chunks of a GiB or more:"
    " expected 1 to 28554 chunks"
)


@pytest.mark.parametrize(
    ("system", "options", "problem"),
    [
        *((HETCHY, {"chunks": n}, CHUNKS.format(n)) for n in (0, -1, 28555)),
        (TINY, {"chunks": 1}, "r1 has 1073741823 bytes, "),
        *((HETCHY, {"cluster": n}, "expected one without /") for n in ("", "a/b", "/")),
        (HETCHY, {"excluded": SYSTEM.hosts}, "all nodes of R are excluded"),
    ],
)
def test_a_graph_that_cannot_be_written_is_refused(
    system: RabbitMapping, options: Any, problem: str
) -> None:
    with pytest.raises(jgfwriter.GraphError, match=re.escape(problem)):
        jgfwriter.scheduling(SYSTEM, system, **options)


def test_hosts_that_r_or_the_mapping_lacks_are_found() -> None:
    R = resources(("hetchy1001", "login1", "hetchy201", "login1"))
    found = jgfwriter.compare(R, HETCHY)
    assert hostlist.encode(found.missing) == "hetchy[1002-1018]"
    assert found.apart == ("login1",)


def test_rabbits_with_more_nodes_than_chunks_are_found() -> None:
    assert jgfwriter.crowded(HETCHY, 16) == ()
    assert jgfwriter.crowded(HETCHY, 15) == ("hetchy202",)
