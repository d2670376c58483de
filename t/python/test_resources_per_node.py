# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""The resources that a jobspec asks for on each node, and the nodes that have them."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from flux_k8s.formats import resourcestatus
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown import (
    below_chassis,
    requested_chassis,
    requested_per_node,
)

CORES = {"type": "core", "count": 4}


def vertex(type: str, count: Any, *below: Json, **more: Any) -> Json:
    return {"type": type, "count": count, **more, "with": list(below)}


def slot(count: Any, *below: Json) -> Json:
    return vertex("slot", count, *below, label="task")


@pytest.mark.parametrize(
    "inside, cores, gpus",
    [
        (slot(1, CORES), 4, 0),
        (slot(2, CORES, {"type": "gpu", "count": 1}), 8, 2),
        (slot({"min": 2, "max": 4}, CORES), 8, 0),
        (vertex("socket", 2, slot("3+", CORES)), 24, 0),
    ],
)
def test_what_is_in_a_node_counts_for_each_node(
    inside: Json, cores: int, gpus: int
) -> None:
    node = vertex("node", 6, inside)
    for resources in ([node], below_chassis([node], 3)):
        found = requested_per_node(resources)
        assert (found["core"], found["gpu"]) == (cores, gpus)
        assert not {"node", "chassis"} & set(found)


def test_nodes_below_an_exclusive_chassis_have_no_fixed_number() -> None:
    (chassis,) = below_chassis([vertex("node", 6, slot(1, CORES))], 3)
    assert requested_chassis([chassis]) == 3
    assert requested_chassis([{**chassis, "exclusive": True}]) is None


@pytest.mark.parametrize(
    ("resources", "chassis"),
    [
        ([vertex("node", 2, slot(1, CORES))], 0),
        ([vertex("node", {"min": 2}, slot(1, CORES))], None),
        ([slot(2, CORES)], None),
        ([vertex("node", 1, slot(1, CORES)), vertex("node", 1, slot(1, CORES))], None),
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
