# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What Fluxion is told about Rabbits, and in how few requests."""

from __future__ import annotations

from typing import Any

import pytest
from test_rabbits_system import marked, requests, set_status, ssds_free, stats, wait

from flux_k8s import hostlist
from flux_k8s import mapping as rabbitmapping
from flux_k8s.errors import BadObject
from flux_k8s.fluxion import MODULE
from flux_k8s.fluxiongraph import Chassis, find_above, find_places
from rabbitsim.dws.topology import Topology
from rabbitsim.flux.broker import Respond
from rabbitsim.flux.events import Json
from rabbitsim.system import VirtualSystem

GIB = 2**30


def vertex(path: str, type: str = "chassis", **properties: str) -> Json:
    metadata: Json = {"type": type, "paths": {"containment": path}}
    if properties:
        metadata["properties"] = properties
    return {"metadata": metadata}


def found(*vertices: Json) -> Json:
    return {"R": {"graph": {"nodes": list(vertices), "edges": []}}}


def test_rabbits_are_where_their_names_are() -> None:
    places = find_places(
        found(
            vertex("/c/rack1/chassis0", rabbit="r0", ssdcount="36"),
            vertex("/c/chassis1", type="rack", rabbit="r1", ssddown="2"),
            vertex("/c/chassis1/node", type="node", rabbit="r1"),
            vertex("/c/chassis1/r1", type="storage_node", rabbit=""),
            vertex("/c", type="cluster"),
        )
    )
    assert places.chassis == {
        "r0": Chassis("/c/rack1/chassis0", 36),
        "r1": Chassis("/c/chassis1", 0, 2),
    }
    assert places.of("n7", "r0") == "/c/rack1/chassis0/n7"
    assert places.of("n7", "r2") is None


def test_nothing_is_found_in_a_graph_without_rabbits() -> None:
    assert find_places({"R": None}).chassis == {}
    assert find_above(found(vertex("/c/n1"), vertex("/c/n2")), "n2") == "/c"
    with pytest.raises(BadObject):
        find_above({"R": None}, "n1")


@pytest.mark.parametrize("answer", [None, [], {"R": 1}, {"R": {"graph": {}}}])
def test_an_answer_that_is_none_is_refused(answer: Any) -> None:
    with pytest.raises(BadObject):
        find_places(answer)


def test_a_rabbit_with_few_ssd_goes_down_by_their_status() -> None:
    system = VirtualSystem(topology=Topology.regular(4, 2, capacity=2 * GIB))
    system.start()
    wait(system)
    requests(system)
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    assert (marked(system), ssds_free(system)) == ("", [0, 2])
    assert sum(requests(system).values()) == 3
    system.kill_module()
    set_status(system, "rabbit-01", "Ready")
    system.load_module()
    wait(system)
    assert ssds_free(system) == [2, 2]


def test_a_node_that_fluxion_lacks_does_not_spoil_the_others() -> None:
    system = VirtualSystem(topology=Topology.regular(8, 2))
    hosts = "compute-[01-02],ghost,compute-[03-04]"
    system.mapping = rabbitmapping.parse(
        {
            "computes": dict.fromkeys(hostlist.decode(hosts), "rabbit-01"),
            "rabbits": {"rabbit-01": {"capacity": GIB, "hostlist": hosts}},
        }
    )
    system.start()
    wait(system)
    set_status(system, "rabbit-01", "Offline")
    wait(system)
    assert marked(system) == "compute-[01-04]"
    told = [line for _, _, line in system.log if "ghost is not told" in line]
    assert len(told) == 1
    assert stats(system)["fluxion"]["unknown_nodes"] == 1


@pytest.mark.parametrize("method", ["find", "set_property", "remove_property"])
def test_what_fails_is_told_again(method: str) -> None:
    system = VirtualSystem()
    methods = system.instance.fluxion.methods
    failures = 3

    def handle(name: str, payload: Json, userid: int, respond: Respond) -> None:
        nonlocal failures
        if name == method and failures > 0:
            failures -= 1
            respond(5, "Input/output error", None)
            return
        try:
            answer = methods[name](payload, userid)
        except OSError as error:
            respond(error.errno or 22, str(error), None)
        else:
            respond(0, "", answer)

    system.instance.broker.register(MODULE, handle)
    system.start()
    set_status(system, "rabbit-01", "Offline")
    wait(system, 100.0)
    assert marked(system) == "compute-[01-02]"
    set_status(system, "rabbit-01", "Ready")
    wait(system, 100.0)
    assert (marked(system), failures) == ("", 0)
    assert any("error; trying again" in line for _, _, line in system.log)
