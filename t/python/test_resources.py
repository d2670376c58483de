# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Storage in a job's request for resources."""

from __future__ import annotations

import copy
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.errors import AllocationError, BadObject
from flux_k8s.formats import resourcestatus
from flux_k8s.formats.directives import GIB
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.breakdown import (
    STRATEGIES,
    AllocationSet,
    Breakdown,
    Reference,
)
from flux_k8s.rules.directivebreakdown.resources import (
    apply_breakdowns,
    below_chassis,
    gib_per_node,
    requested_chassis,
    requested_nodes,
    requested_per_node,
    share_of_node,
)
from support.breakdowns import across, per_compute

TASK = {
    "type": "slot",
    "count": 1,
    "label": "task",
    "with": [{"type": "core", "count": 1}],
}


def node(count: Any = 2, **more: Any) -> Json:
    return {"type": "node", "count": count, "with": [TASK], **more}


def breakdown(*sets: AllocationSet, lifetime: str = "job") -> Breakdown:
    return Breakdown("b", "#DW ...", lifetime, sets, Reference("default", "b"))


XFS = breakdown(per_compute(10 * GIB))

allocation_sets = st.builds(
    AllocationSet,
    st.just("ost"),
    st.sampled_from([*STRATEGIES.values()]),
    st.integers(1, 2**45) | st.integers(1, 2**63 - 1),
)
breakdowns = st.lists(
    st.builds(
        lambda sets: breakdown(*sets), st.lists(allocation_sets, min_size=1, max_size=3)
    ),
    max_size=3,
)
counts = st.one_of(
    st.integers(1, 10**6),
    st.builds(lambda low, more: f"{low}-{low + more}", st.integers(1, 99), st.just(5)),
    st.builds(lambda low: {"min": low, "max": 2 * low}, st.integers(1, 99)),
)
requests = st.builds(
    lambda count, chassis, exclusive: (
        [node(count, exclusive=exclusive)]
        if chassis is None
        else [{"type": "chassis", "count": chassis, "with": [node(count)]}]
    ),
    counts,
    st.none() | st.integers(1, 50),
    st.booleans(),
)


def test_the_example_of_proposal_comes_out_exactly() -> None:
    before = [node(2)]
    kept = copy.deepcopy(before)
    ssd = {"type": "ssd", "count": 10, "exclusive": True}
    slot = {"type": "slot", "count": 2, "label": "rabbit", "with": [node(1), ssd]}
    assert apply_breakdowns([XFS], before) == [slot]
    assert before == kept


def ssd_of(resources: list[Json]) -> int:
    slot = resources[0]
    while slot.get("label") != "rabbit":
        slot = slot["with"][0]
    return int(slot["with"][1]["count"])


ONE, HALF = AllocationSet("mgt", STRATEGIES["AllocateSingleServer"], 3 * GIB), GIB // 2
PER_SERVER = AllocationSet("ost", STRATEGIES["AllocatePerServer"], 7 * GIB)
HALVES = [breakdown(per_compute(HALF), across(HALF)), breakdown(per_compute(HALF))]

# What storage is requested for how many nodes; and how many ssd each node needs.
AMOUNTS = [
    ([breakdown(per_compute(11051991040))], 2, 11),  # what NNF makes of 10 GiB
    # What may go anywhere is divided among the nodes.
    *(
        ([breakdown(across(10 * 2**40))], nodes, n)
        for nodes, n in ((4, 2560), (3, 3414))
    ),
    ([breakdown(ONE)], 2, 2),
    ([breakdown(PER_SERVER)], 4, 7),
    *((HALVES, nodes, 2) for nodes in (1, 2)),  # summed before rounding
    ([breakdown(across(20 * GIB), lifetime="persistent")], 2, 10),
]


@pytest.mark.parametrize(("found", "nodes", "ssd"), AMOUNTS)
def test_each_node_has_the_ssd_that_it_needs(
    found: list[Breakdown], nodes: int, ssd: int
) -> None:
    assert ssd_of(apply_breakdowns(found, [node(nodes)])) == ssd


STORAGE_NODE = {"type": "storage_node", "count": 1, "exclusive": True}


def in_chassis(*children: Json) -> list[Json]:
    return [{"type": "chassis", "count": 2, "with": list(children)}]


def test_ssd_stand_beside_nodes_and_a_node_of_their_rabbit_without_a_slot() -> None:
    """A form that Fluxion 0.54 gives, and that flux-shell 0.88 can read."""
    before = in_chassis(STORAGE_NODE, node(3))
    ssd = {"type": "ssd", "count": 30, "exclusive": True, "label": "rabbit"}
    after = in_chassis(STORAGE_NODE, node(3), ssd)
    assert apply_breakdowns([XFS], before) == after
    assert apply_breakdowns([XFS], after) == after
    assert apply_breakdowns([], after) == before
    assert requested_nodes(after) == requested_nodes(before) == 6


@pytest.mark.parametrize(
    ("resources", "named"),
    [
        ([node(), STORAGE_NODE], "storage_node below a chassis"),
        (in_chassis(node("1-2"), STORAGE_NODE), "count"),
    ],
)
def test_nodes_beside_a_node_of_another_rabbit_or_in_a_range_get_no_storage(
    resources: list[Json], named: str
) -> None:
    with pytest.raises(BadObject, match=named):
        apply_breakdowns([XFS], resources)


def test_the_share_of_a_node_has_what_may_go_anywhere_where_a_scheduler_gives_it() -> (
    None
):
    breakdowns = [breakdown(per_compute(2 * GIB), across(10 * GIB))]
    assert share_of_node(breakdowns, 4) == 5 * GIB
    assert share_of_node(breakdowns, 4, scheduler=False) == 2 * GIB


@pytest.mark.parametrize("count", ["4-8", {"min": 4, "max": 8}])
def test_a_range_of_nodes_gets_what_its_least_number_needs(count: Any) -> None:
    resources = apply_breakdowns([breakdown(across(240 * GIB))], [node(count)])
    assert resources[0]["count"] == count and ssd_of(resources) == 60


def test_directives_without_storage_leave_the_request_alone() -> None:
    persistentdw = Breakdown("b", "#DW persistentdw name=keep1")
    for request in ([node(2)], [TASK]):
        assert apply_breakdowns([persistentdw], request) == request
        assert apply_breakdowns([], request) == request


def test_a_request_without_whole_nodes_is_refused_with_advice() -> None:
    with pytest.raises(AllocationError, match="add -N"):
        apply_breakdowns([XFS], [TASK])


@given(breakdowns, breakdowns, requests)
def test_applying_breakdowns_again_replaces_their_storage(
    first: list[Breakdown], second: list[Breakdown], request_: list[Json]
) -> None:
    once = apply_breakdowns(first, request_)
    assert apply_breakdowns(first, once) == once
    assert apply_breakdowns(second, once) == apply_breakdowns(second, request_)
    assert apply_breakdowns([], once) == request_


@given(breakdowns, st.integers(1, 20000))
def test_rounding_to_ssd_never_gives_less_than_directives_request(
    found: list[Breakdown], nodes: int
) -> None:
    ssd = gib_per_node(found, nodes)
    sets = [entry for item in found for entry in item.allocation_sets]
    per_node = ("AllocatePerCompute", "AllocatePerServer")
    sizes = {
        own: sum(
            s.minimum_capacity for s in sets if (s.strategy.name in per_node) is own
        )
        for own in (True, False)
    }
    each, shared = sizes[True], sizes[False]
    assert ssd * GIB * nodes >= each * nodes + shared
    assert ssd * GIB <= each + shared // nodes + len(sets) + GIB


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (None, "resources is null, expected an array"),
        (5, "resources is 5, expected an array"),
        ({}, "resources is {}, expected an array"),
        ([5], "resources[0] is 5, expected an object"),
        ([{"type": "node"}], "resources[0].count is missing"),
        ([node(0)], "resources[0].count is 0"),
        ([node(-1)], "resources[0].count is -1"),
        ([node(1.5)], "resources[0].count is 1.5"),
        ([node("x")], "an RFC 45 range"),
        ([node({})], "resources[0].count.min is missing"),
        ([{"count": 1}], "resources[0].type is missing"),
        ([{"type": "chassis", "count": 1, "with": 5}], "resources[0].with is 5"),
        ([{"type": "chassis", "count": 1, "with": [node(0)]}], "with[0].count is 0"),
        ([{**TASK, "with": [node(1)]}], "no slot around a node"),
        ([node(1), node(1)], "a single node vertex"),
    ],
)
def test_wrong_resources_are_refused_with_their_place(
    request_: Any, words: str
) -> None:
    with pytest.raises(BadObject) as caught:
        apply_breakdowns([XFS], request_, name="jobspec of job f1")
    assert str(caught.value).startswith("jobspec of job f1: ")
    assert words in str(caught.value)


def test_a_request_that_is_nested_without_end_is_refused() -> None:
    vertex = node(1)
    for _ in range(500):
        vertex = {"type": "rack", "count": 1, "with": [vertex]}
    with pytest.raises(BadObject, match="levels of resources"):
        apply_breakdowns([XFS], [vertex])


# What is asked for on each node, and the nodes that have it

CORES = {"type": "core", "count": 4}


def slot(count: Any, *below: Json) -> Json:
    return {"type": "slot", "count": count, "label": "task", "with": list(below)}


@pytest.mark.parametrize(
    "inside, cores, gpus",
    [
        (slot(1, CORES), 4, 0),
        (slot(2, CORES, {"type": "gpu", "count": 1}), 8, 2),
        (slot({"min": 2, "max": 4}, CORES), 8, 0),
        ({"type": "socket", "count": 2, "with": [slot("3+", CORES)]}, 24, 0),
    ],
)
def test_what_is_in_a_node_counts_for_each_node(
    inside: Json, cores: int, gpus: int
) -> None:
    nodes = {**node(6), "with": [inside]}
    for resources in ([nodes], below_chassis([nodes], 3)):
        found = requested_per_node(resources)
        assert (found["core"], found["gpu"]) == (cores, gpus)
        assert not {"node", "chassis"} & set(found)


def test_nodes_below_an_exclusive_chassis_have_no_fixed_number() -> None:
    (chassis,) = below_chassis([node(6)], 3)
    assert requested_chassis([chassis]) == 3
    assert requested_chassis([{**chassis, "exclusive": True}]) is None


@pytest.mark.parametrize(
    ("resources", "chassis"),
    [
        ([node(2)], 0),
        ([node({"min": 2})], None),
        ([slot(2, CORES)], None),
        ([node(1), node(1)], None),
    ],
)
def test_only_a_fixed_number_of_whole_nodes_may_be_near_each_other(
    resources: list[Any], chassis: Optional[int]
) -> None:
    assert requested_chassis(resources) == chassis


def status(*sorts: tuple[str, Json]) -> Json:
    lite = [{"rank": ranks, "children": children} for ranks, children in sorts]
    execution = {"R_lite": lite, "nodelist": ["n[0-5]"]}
    return {"R": {"version": 1, "execution": execution}, "drain": {}}


def test_nodes_lack_what_they_have_less_of() -> None:
    states = resourcestatus.parse(
        status(("0-1", {"core": "0-3", "gpu": "0"}), ("2-5", {"core": "0-7"}))
    )
    assert states.lacking({"core": 4}) == frozenset()
    assert states.lacking({"core": 5}) == {"n0", "n1"}
    assert states.lacking({"gpu": 1}) == {"n2", "n3", "n4", "n5"}
    assert states.lacking({"gpu": 1, "core": 8}) == set(states.hosts)


def test_what_no_node_has_by_R_is_not_lacking() -> None:
    states = resourcestatus.parse(status(("0-5", {"core": "0-3"})))
    assert states.lacking({"gpu": 1, "memory": 9}) == frozenset()
