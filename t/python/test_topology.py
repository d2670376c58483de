# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""From the objects of a cluster to the rabbitmapping."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_k8s.errors import BadObject
from flux_k8s.objects import mapping, topology
from rabbitsim.dws.topology import system_configuration
from support.mapping import EXAMPLE, HETCHY, of_system, servers, storages, system_of
from support.service import TIB


def test_hetchy_becomes_the_mapping_of_the_seed() -> None:
    found = topology.parse(system_configuration(HETCHY), storages(HETCHY), [])
    assert json.dumps(found.to_json(), indent=4) == json.dumps(EXAMPLE, indent=4)


def test_the_mapping_of_a_cluster_is_in_natural_order() -> None:
    system = system_of({"r10": ("n2", "n10", "n1"), "r9": ("n3", "n7")})
    found = topology.parse(system_configuration(system), storages(system), [])
    assert found.rabbits == ("r9", "r10")
    assert list(found.to_json()["computes"]) == ["n1", "n2", "n3", "n7", "n10"]
    assert found.to_json()["rabbits"]["r10"]["hostlist"] == "n[1-2,10]"


names = st.integers(0, 10**4).map("x{}".format)


@given(
    hosts=st.lists(names, unique=True, min_size=1, max_size=40),
    cuts=st.sets(st.integers(0, 40), max_size=5),
    sort=st.booleans(),
    data=st.data(),
)
def test_any_mapping_is_found_again_whatever_jobs_hold(
    hosts: list[str], cuts: set[int], sort: bool, data: st.DataObject
) -> None:
    edges = [0, *sorted(cuts), len(hosts)]
    parts = [tuple(hosts[a:b]) for a, b in zip(edges, edges[1:])]
    system = system_of({f"rabbit{i}": part for i, part in enumerate(parts)})
    objects, holding = storages(system), []
    for index, obj in enumerate(objects):
        sizes = data.draw(st.lists(st.integers(0, TIB // 4), max_size=4))
        obj["status"]["capacity"] -= sum(sizes)
        name = obj["metadata"]["name"]
        holding += [servers(f"s{index}-{n}", **{name: s}) for n, s in enumerate(sizes)]
    found = topology.parse(system_configuration(system), objects, holding, sort=sort)
    assert mapping.parse(found.to_json()).to_json() == found.to_json()
    assert found.to_json()["computes"] == system.rabbit_of
    assert {found.capacity(rabbit) for rabbit in found.rabbits} == {TIB}


def test_storage_that_is_requested_and_not_made_counts_as_free() -> None:
    storage = [{"name": "hetchy201", "allocationCount": 2}]
    sets = [{"label": "xfs", "allocationSize": TIB, "storage": storage}]
    asking = {**servers("s"), "spec": {"allocationSets": sets}, "status": None}
    objects = system_configuration(HETCHY), storages(HETCHY)
    found = topology.parse(*objects, [asking])
    assert found.capacity("hetchy201") == HETCHY.rabbits["hetchy201"].capacity


def test_system_storage_is_left_out_of_the_capacity_unless_asked_for() -> None:
    system = system_of({"r1": ("n1",), "r2": ("n2",)})
    held = [
        of_system(servers("system", r1=TIB // 4)),
        servers("job", r1=TIB // 8, r2=TIB // 8),
    ]
    free = storages(system)
    free[0]["status"]["capacity"] = TIB - TIB // 4 - TIB // 8
    free[1]["status"]["capacity"] = TIB - TIB // 8
    configuration = system_configuration(system)

    found = topology.parse(configuration, free, held).to_json()
    assert found["rabbits"]["r1"]["capacity"] == TIB - TIB // 4
    assert found["rabbits"]["r1"]["system"] == TIB // 4
    assert found["rabbits"]["r2"] == {"capacity": TIB, "hostlist": "n2"}
    again = mapping.parse(found)
    assert again.to_json() == found
    assert (again.capacity("r1"), again.size("r1")) == (TIB - TIB // 4, TIB)

    whole = topology.parse(configuration, free, held, system_storage=True)
    assert whole.to_json()["rabbits"]["r1"] == {"capacity": TIB, "hostlist": "n1"}


def test_storage_nodes_that_are_no_rabbits_are_ignored() -> None:
    configuration = system_configuration(HETCHY)
    configuration["spec"]["storageNodes"].append({"name": "nas", "type": "Other"})
    found = topology.parse(configuration, storages(HETCHY), [])
    assert found.rabbits == ("hetchy201", "hetchy202")


def test_all_problems_of_a_cluster_are_named() -> None:
    configuration, (storage, _) = system_configuration(HETCHY), storages(HETCHY)
    first, second = nodes = configuration["spec"]["storageNodes"]
    second["computesAccess"].append(first["computesAccess"][0])
    first["computesAccess"] *= 2
    nodes.append(second)
    storage["status"] = {"capacity": 0, "status": "Offline"}
    with pytest.raises(topology.TopologyError) as caught:
        topology.parse(configuration, [storage], [])
    start = "SystemConfiguration default/default: "
    assert [text.replace(start, "") for text in str(caught.value).splitlines()] == [
        "compute node hetchy1001 is listed twice under hetchy201, expected once",
        "compute node hetchy1002 is listed twice under hetchy201, expected once",
        "compute node hetchy1001 is listed under hetchy201 and under hetchy202,"
        " expected one Rabbit",
        "Rabbit hetchy202 is listed twice, expected once",
        "Rabbit hetchy201 has no capacity: status.capacity of its Storage is 0 and its"
        " status is Offline, expected a number of bytes",
        "Rabbit hetchy202 has no capacity: it has no Storage",
    ]


def test_a_cluster_without_rabbits_is_refused() -> None:
    configuration = copy.deepcopy(system_configuration(HETCHY))
    del configuration["spec"]["storageNodes"]
    with pytest.raises(topology.TopologyError, match="storageNodes has no Rabbit"):
        topology.parse(configuration, [], [])


def test_servers_against_the_schema_are_refused_by_name() -> None:
    bad = servers("fluxjob-1-0", hetchy201=-1)
    with pytest.raises(BadObject, match="^Servers default/fluxjob-1-0: status"):
        topology.parse(system_configuration(HETCHY), storages(HETCHY), [bad])
