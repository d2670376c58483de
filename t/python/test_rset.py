# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""RFC 20: R, and the Rabbits in it."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.errors import BadObject
from flux_k8s.formats import idset, jgf, rset
from flux_k8s.objects import mapping
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.allocation import gib_per_rabbit
from support.fluxpython import needs_flux, of_flux
from support.objects import changed
from support.rset import fluxion_r, in_shorthand, vertex

EXAMPLE: Json = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "19-22", "children": {"core": "0-47", "gpu": "0-7"}}],
        "nodelist": ["node[186-189]"],
        "nslots": 32,
        "starttime": 1676560542,
        "expiration": 1676562342,
    },
}

SYSTEM = mapping.parse(
    {
        "computes": {"h0": "rab0", "h1": "rab0", "h2": "rab1", "h3": "rab1"},
        "rabbits": {
            "rab0": {"capacity": 32 * 2**30, "hostlist": "h[0-1]"},
            "rab1": {"capacity": 32 * 2**30, "hostlist": "h[2-3]"},
        },
    }
)


ILLEGAL = [*"!&'\"^`|()", "\udc80"]
"""Characters that no property may have."""


def test_the_example_of_rfc_20_is_read() -> None:
    resources = rset.parse(EXAMPLE)
    assert resources.ranks == (19, 20, 21, 22)
    assert resources.hosts == ("node186", "node187", "node188", "node189")
    assert resources.targets[0].children == {"core": "0-47", "gpu": "0-7"}
    assert resources.nslots == 32
    assert resources.expiration == 1676562342
    assert resources.writer == "fluxion"
    assert rset.parse(changed(EXAMPLE, "execution.nslots", ...)).nslots is None
    assert resources.to_json() == EXAMPLE


def test_the_hosts_of_r_follow_its_sorted_ranks_and_not_its_entries() -> None:
    cores = {"7,9": "0", "2,8": "0-1"}
    lite = [{"rank": ranks, "children": {"core": cores[ranks]}} for ranks in cores]
    R = changed(EXAMPLE, "execution.R_lite", lite)
    resources = rset.parse(changed(R, "execution.nodelist", ["d,c", "b[1,1]"]))
    assert resources.ranks == (2, 7, 8, 9)
    assert resources.hosts == ("d", "c", "b1", "b1")  # with several brokers
    found = [target.children["core"] for target in resources.targets]
    assert found == ["0-1", "0", "0-1", "0"]


def test_a_time_of_zero_in_r_is_unset() -> None:
    R = changed(EXAMPLE, "execution.expiration", 0.0)
    assert rset.parse(R).expiration is None
    R = changed(R, "execution.starttime", 0)
    assert rset.parse(R).starttime is None


def test_properties_of_r_apply_to_ranks() -> None:
    properties = {"amd-mi50@gpu": "19-20", "big": "20,22", "none": ""}
    resources = rset.parse(changed(EXAMPLE, "execution.properties", properties))
    assert _properties_of(resources, 20) == {"amd-mi50@gpu", "big"}
    assert _properties_of(resources, 21) == set()
    assert resources.to_json()["execution"]["properties"] == properties


def test_the_scheduling_key_of_r_is_kept_as_it_is() -> None:
    scheduling = {"writer": "other:x/y", "graph": {"anything": [1, None, "x"]}}
    resources = rset.parse({**EXAMPLE, "scheduling": scheduling})
    assert resources.writer == "other:x/y"
    assert resources.to_json()["scheduling"] == scheduling
    del scheduling["writer"]
    assert rset.parse({**EXAMPLE, "scheduling": scheduling}).writer == "fluxion"


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("version", 2, "version is 2, expected 1"),
        ("version", ..., "version is missing, expected 1"),
        ("execution", None, "execution is null, expected an object"),
        ("execution.R_lite", ..., "execution.R_lite is missing, expected an array"),
        ("execution.R_lite", [], "at least one entry"),
        ("execution.R_lite.0", 3, "execution.R_lite[0] is 3"),
        ("execution.R_lite.0.rank", 19, "R_lite[0].rank is 19, expected a string"),
        ("execution.R_lite.0.rank", "", "at least one rank"),
        ("execution.R_lite.0.rank", "22-19", "RFC 22"),
        ("execution.R_lite.0.rank", "19-99999999", "execution.R_lite[0].rank"),
        ("execution.R_lite.0.rank", "19-23", "for each of the 5 ranks, not 4"),
        ("execution.R_lite.0.children", ..., "R_lite[0].children is missing"),
        ("execution.R_lite.0.children.core", ..., "children.core is missing"),
        ("execution.R_lite.0.children.gpu", 8, "children.gpu is 8"),
        ("execution.nodelist", "node[186-189]", "expected an array"),
        ("execution.nodelist", ["node[186-189"], "RFC 29"),
        ("execution.nodelist", ["h[0-999999999]"], "RFC 29"),
        ("execution.nodelist", [5], "nodelist[0] is 5"),
        ("execution.nodelist", [], "not 0 hosts"),
        ("execution.nslots", 0, "nslots is 0, expected an integer of at least 1"),
        ("execution.nslots", -1, "nslots is -1"),
        ("execution.nslots", "32", 'nslots is "32"'),
        ("execution.nslots", True, "nslots is true"),
        ("execution.nslots", 2**63, "below 2^63"),
        ("execution.starttime", -1, "starttime is -1"),
        ("execution.starttime", "now", 'starttime is "now"'),
        ("execution.expiration", 1676560542, "a time after starttime (1676560542)"),
        ("execution.expiration", float("nan"), "a number"),
        *(("execution.properties", {f"a{c}b": "19"}, "properties is") for c in ILLEGAL),
        ("execution.properties", {"": "19"}, "a name"),
        ("execution.properties", {"big": "23"}, "ranks of R_lite only"),
        ("execution.properties", {"big": "x"}, "properties.big"),
        ("execution.properties", {"big": [1]}, "properties.big"),
        ("scheduling", [], "scheduling is []"),
        ("scheduling", {"writer": 5}, "scheduling.writer is 5"),
    ],
)
def test_a_wrong_r_is_refused_with_its_place(
    place: str, value: Any, words: str
) -> None:
    with pytest.raises(BadObject) as caught:
        rset.parse(changed(EXAMPLE, place, value), name="R of job f1")
    assert str(caught.value).startswith("R of job f1: ")
    assert words in str(caught.value)


def test_a_rank_in_two_entries_is_refused() -> None:
    entry = EXAMPLE["execution"]["R_lite"][0]
    R = changed(EXAMPLE, "execution.R_lite", [entry, {**entry, "rank": "22"}])
    with pytest.raises(BadObject, match="22 is in two"):
        rset.parse(R)


@given(st.sets(st.integers(0, 300), min_size=1), st.randoms())
def test_printing_and_reading_gives_the_same_r(ranks: set[int], random: Any) -> None:
    entries: dict[str, list[int]] = {}
    for rank in ranks:
        entries.setdefault(random.choice(["0", "0-3", "1,3"]), []).append(rank)
    R = {
        "version": 1,
        "execution": {
            "R_lite": [
                {"rank": idset.encode(members), "children": {"core": core}}
                for core, members in entries.items()
            ],
            "nodelist": [f"h{random.randrange(20)}" for _ in ranks],
            "properties": {"p": idset.encode(r for r in ranks if r % 2)},
        },
    }
    resources = rset.parse(R)
    assert rset.parse(json.loads(json.dumps(resources.to_json()))) == resources


BOTH = {"h0": "rab0", "h2": "rab1"}
EIGHT = {"rab1": [8], "rab0": [8]}
FIRST = "/cluster0/chassis1"  # rab0, in EIGHT

# The hosts of a job, the ssd below its Rabbits, what it has as a whole in a shorthand
# graph (None: the graph is none), and its storage on each Rabbit.
STORAGE: list[tuple[Json, Json, Optional[list[str]], Json]] = [
    (
        {**BOTH, "h3": "rab1"},
        {"rab1": [8, 8, 8, 8], "rab0": [1, 8]},
        *(None, {"rab0": 9, "rab1": 32}),
    ),
    (BOTH, {"rab0": [8], "rab1": []}, None, {"rab0": 8, "rab1": 0}),
    (BOTH, {"rab1": [8, 8], "rab0": [1, 8]}, [], {"rab0": 9, "rab1": 16}),
    # How much there is on a Rabbit that a job has as a whole is not known,
    (BOTH, EIGHT, [FIRST], {"rab0": None, "rab1": 8}),
    (BOTH, EIGHT, ["/cluster0"], {"rab0": None, "rab1": None}),
    # also where it has no nodes.
    ({"h2": "rab1"}, EIGHT, [FIRST], {"rab0": None, "rab1": 8}),
    # A shorthand graph may leave out the nodes of a rack.
    ({"h0": "rab0", "h2": "gone"}, {"rab0": [8]}, [], {"rab0": 8, "rab1": None}),
]


@pytest.mark.parametrize(("hosts", "ssd", "whole", "storage"), STORAGE)
def test_a_graph_has_the_storage_of_a_job_on_each_rabbit(
    hosts: Json, ssd: Json, whole: Optional[list[str]], storage: Json
) -> None:
    R = fluxion_r(hosts, ssd)
    if whole is not None:
        R = in_shorthand(R, whole)
    assert gib_per_rabbit(rset.parse(R), SYSTEM) == storage


def test_r_without_a_graph_has_the_rabbits_of_its_hosts_and_no_amounts() -> None:
    R = fluxion_r({"h2": "rab1", "h3": "rab1"}, {})
    for scheduling in (..., {}, {"writer": "other", "graph": 7}):
        resources = rset.parse(changed(R, "scheduling", scheduling))
        assert gib_per_rabbit(resources, SYSTEM) == {"rab1": None}
    assert gib_per_rabbit(rset.parse(R), SYSTEM) == {"rab1": None}


@pytest.mark.parametrize(
    ("hosts", "ssd", "words"),
    [
        ({"h0": "rab9"}, {"rab9": [8]}, '"rab9", expected a Rabbit of the rabbit map'),
        ({"h0": "rab1"}, {"rab1": [8]}, "h0 below rab0"),
        ({"h0": "rab0", "x": "rab0"}, {"rab0": [8]}, "x below no Rabbit"),
        ({"h0": "rab0", "h1": "gone"}, {"rab0": [8]}, "execution.nodelist is"),
    ],
)
def test_a_graph_that_contradicts_the_mapping_is_refused(
    hosts: dict[str, str], ssd: dict[str, list[int]], words: str
) -> None:
    R = fluxion_r(hosts, ssd)
    for each in (R, in_shorthand(R)) if words == "h0 below rab0" else (R,):
        with pytest.raises(BadObject) as caught:
            gib_per_rabbit(rset.parse(each), SYSTEM, "R of job f1")
        assert words in str(caught.value)


def test_a_graph_with_a_node_that_r_lacks_is_refused() -> None:
    R = fluxion_r({"h0": "rab0", "h1": "rab0"}, {"rab0": [8]})
    R["execution"]["R_lite"][0]["rank"] = "0"
    R["execution"]["nodelist"] = ["h0"]
    with pytest.raises(BadObject, match="a node of execution.nodelist"):
        gib_per_rabbit(rset.parse(R), SYSTEM)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("scheduling.graph", 1, "scheduling.graph is 1"),
        ("scheduling.graph.nodes", ..., "scheduling.graph.nodes is missing"),
        ("scheduling.graph.nodes.0.metadata", ..., "nodes[0].metadata is missing"),
        ("scheduling.graph.nodes.2.metadata.type", ..., "metadata.type is missing"),
        ("scheduling.graph.nodes.2.metadata.id", "x", "metadata.id is"),
        ("scheduling.graph.nodes.2.metadata.size", -1, "metadata.size is -1"),
        ("scheduling.graph.nodes.2.metadata.paths", {}, "paths.containment is"),
        ("scheduling.graph.nodes.1.metadata.properties", {"rabbit": 1}, "rabbit is 1"),
        ("scheduling.graph.nodes.1.metadata.properties", {}, "an ssd below a vertex"),
    ],
)
def test_a_malformed_graph_is_refused_with_its_place(
    place: str, value: Any, words: str
) -> None:
    R = changed(fluxion_r({"h0": "rab0"}, {"rab0": [8]}), place, value)
    with pytest.raises(BadObject) as caught:
        gib_per_rabbit(rset.parse(R), SYSTEM)
    assert words in str(caught.value)


@pytest.mark.parametrize("path", ["/c0/rack0/h0/ssd0", "/c0/h9/ssd0", "/ssd0"])
def test_an_ssd_that_is_no_rabbits_is_refused_wherever_it_is(path: str) -> None:
    """The scheduler may have given it to the job instead of a Rabbit's."""
    nodes = [
        vertex("ssd", path, id=0, size=100),
        vertex("node", "/c0/rack0/h0", id=0, name="h0"),
        vertex("rack", "/c0/rack0", id=0, properties={"rabbit": "rab0"}),
        vertex("node", "/c0/h9", id=9, name="h9"),
    ]
    with pytest.raises(BadObject) as caught:
        jgf.parse({"graph": {"nodes": nodes, "edges": []}})
    expected = "an ssd below a vertex with the property rabbit, and below no node"
    assert f'is "{path}", expected {expected}' in str(caught.value)


def test_a_vertex_has_the_name_that_fluxion_leaves_out() -> None:
    nodes = [
        vertex("ssd", "/c0/ssd3", id=3),
        vertex("node", "/c0/n5", id=5, basename="n"),
        vertex("node", "/c0/h7", id=1, name="h7"),
    ]
    found = jgf.vertices({"graph": {"nodes": nodes, "edges": []}}, "R")
    assert [v.name for v in found] == ["ssd3", "n5", "h7"]


@needs_flux
def test_flux_reads_the_r_that_we_print_and_we_read_the_r_of_flux() -> None:
    properties = {"a@gpu": "19", "b": "19-21"}
    ours = [
        rset.parse(EXAMPLE),
        rset.parse(changed(EXAMPLE, "execution.properties", properties)),
    ]
    theirs = of_flux(
        "from flux.resource import ResourceSet",
        "[ResourceSet(R).to_dict() for R in given]",
        [resources.to_json() for resources in ours],
    )
    for mine, other in zip(ours, map(rset.parse, theirs)):
        assert other.targets == mine.targets
        assert other.properties == mine.properties
        assert other.expiration == mine.expiration


def _properties_of(found: rset.ResourceSet, rank: int) -> set[str]:
    return {name for name, ranks in found.properties.items() if rank in ranks}
