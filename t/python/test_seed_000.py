# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Seed 000, "Directive Breakdown": its examples, section by section."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from flux_k8s.dws import directivebreakdown as db
from flux_k8s.dws import mapping
from flux_k8s.dws.directivebreakdown import Access, Allocation, Breakdown, Reference
from flux_k8s.dws.directives import GIB
from flux_k8s.errors import AllocationError, BadObject, DirectiveError
from flux_k8s.ports import Json

SERVERS: Json = {"kind": "Servers", "name": "example-0", "namespace": "default"}
OWN = Reference("default", "example-0")


def breakdown(
    directive: str,
    storage: Optional[list[Json]] = None,
    locations: Optional[list[Json]] = None,
    lifetime: str = "job",
    **status: Any,
) -> Breakdown:
    """The section's YAML, with what the text around it says."""
    found: Json = {"ready": True, **status}
    if storage is not None:
        found["storage"] = {
            "allocationSets": storage,
            "lifetime": lifetime,
            "reference": SERVERS,
        }
    if locations is not None:
        found["compute"] = {"constraints": {"location": locations}}
    return db.parse(
        {
            "metadata": {"name": "example-0", "namespace": "default"},
            "spec": {"directive": directive, "userID": 7900},
            "status": found,
        }
    )


def entry(label: str, strategy: str, capacity: int, **constraints: Any) -> Json:
    return {
        "allocationStrategy": strategy,
        "label": label,
        "minimumCapacity": capacity,
        "constraints": constraints,
    }


def allocation(nodes: dict[str, int], **more: Any) -> Allocation:
    hosts = [f"{rabbit}-{n}" for rabbit in nodes for n in range(nodes[rabbit])]
    return Allocation(tuple(hosts), nodes, **more)


def places(made: Json) -> dict[str, int]:
    return {s["name"]: s["allocationCount"] for s in made["storage"]}


XFS = "#DW jobdw capacity=1GiB type=xfs name=example"


def test_directive_breakdown_overview_ready_comes_first() -> None:
    with pytest.raises(BadObject, match="status.ready is false, expected true"):
        breakdown(XFS, ready=False)


def test_storage_nodes_one_allocation_per_compute_node() -> None:
    found = breakdown(XFS, [entry("xfs", "AllocatePerCompute", 1073741824)])
    assert (found.lifetime, found.servers) == ("job", OWN)
    assert db.build_allocation_sets(found, allocation({"r1": 2, "r2": 1})) == [
        {
            "label": "xfs",
            "allocationSize": 1073741824,
            "storage": [
                {"name": "r1", "allocationCount": 2},
                {"name": "r2", "allocationCount": 1},
            ],
        }
    ]


def test_storage_nodes_across_servers_is_an_aggregate_of_equal_parts() -> None:
    found = breakdown(XFS, [entry("ost", "AllocateAcrossServers", 10 * GIB)])
    (made,) = db.build_allocation_sets(found, allocation({"r1": 2, "r2": 1}))
    total = sum(places(made).values())
    assert made["allocationSize"] * total >= 10 * GIB
    assert (made["allocationSize"] - 1) * total < 10 * GIB


def test_storage_nodes_single_server_is_one_allocation() -> None:
    found = breakdown(XFS, [entry("mgt", "AllocateSingleServer", GIB)])
    (made,) = db.build_allocation_sets(found, allocation({"r1": 2, "r2": 1}))
    assert (made["allocationSize"], sum(places(made).values())) == (GIB, 1)


def test_storage_nodes_sets_are_handled_independently() -> None:
    sets = [entry("ost", "AllocateAcrossServers", 4 * GIB, count=2)]
    sets += [entry("mdt", "AllocateSingleServer", GIB)]
    made = db.build_allocation_sets(
        breakdown(XFS, sets), allocation({"r1": 1, "r2": 1})
    )
    assert [m["label"] for m in made] == ["ost", "mdt"]


def test_storage_nodes_persistent_storage_outlasts_the_job() -> None:
    found = breakdown(
        "#DW create_persistent type=xfs capacity=1GiB name=keep",
        [entry("xfs", "AllocatePerCompute", GIB)],
        lifetime="persistent",
    )
    assert found.lifetime == "persistent"
    request = [{"type": "node", "count": 1, "with": []}]
    assert db.apply_breakdowns([found], request)[0]["with"][1] == {
        "type": "ssd",
        "count": 1,
        "exclusive": True,
    }


def test_storage_constraints_labels_must_all_be_there() -> None:
    wanted = ["Rabbit", "firmware_test", "fast"]
    found = breakdown(
        XFS, [entry("ost", "AllocateAcrossServers", 4 * GIB, labels=wanted)]
    )
    storages = {
        "rabbit-node-1": {"Rabbit": "", "firmware_test": "", "fast": ""},
        "rabbit-node-2": {"Rabbit": "", "fast": ""},
    }
    on = allocation({"rabbit-node-1": 1, "rabbit-node-2": 3}, storages=storages)
    (made,) = db.build_allocation_sets(found, on)
    assert set(places(made)) == {"rabbit-node-1"}


def test_storage_constraints_colocation_is_exclusive_for_each_key() -> None:
    def mgt(key: str) -> Json:
        colocation = [{"type": "exclusive", "key": key}]
        return entry("mgt", "AllocateSingleServer", GIB, colocation=colocation)

    on = allocation({"r1": 1, "r2": 1})
    same = breakdown(XFS, [mgt("lustre-mgt"), mgt("lustre-mgt")])
    first, second = map(places, db.build_allocation_sets(same, on))
    assert set(first).isdisjoint(second)
    alone = allocation({"r1": 1})
    other = breakdown(XFS, [mgt("lustre-mgt"), mgt("other")])
    assert [places(m) for m in db.build_allocation_sets(other, alone)] == [
        {"r1": 1}
    ] * 2
    with pytest.raises(AllocationError, match='colocation key "lustre-mgt"'):
        db.build_allocation_sets(same, alone)


def test_storage_constraints_colocation_leaves_a_node_to_each_set() -> None:
    colocation = [{"type": "exclusive", "key": "lustre-mgt"}]
    sets = [
        entry("mdt", "AllocateAcrossServers", 4 * GIB, colocation=colocation),
        entry("mgt", "AllocateSingleServer", GIB, colocation=colocation),
    ]
    on = allocation({"r1": 1, "r2": 1})
    mdt, mgt = map(places, db.build_allocation_sets(breakdown(XFS, sets), on))
    assert (len(mdt), len(mgt)) == (1, 1)
    assert set(mdt).isdisjoint(mgt)


def test_storage_constraints_count_5_makes_five_allocations() -> None:
    found = breakdown(XFS, [entry("ost", "AllocateAcrossServers", 10 * GIB, count=5)])
    (made,) = db.build_allocation_sets(found, allocation({"r1": 3, "r2": 3}))
    assert sum(places(made).values()) == 5
    assert made["allocationSize"] == 2 * GIB


def test_storage_constraints_scale_runs_from_fewest_to_most() -> None:
    on = allocation({f"r{n}": 4 for n in range(4)}, ssd_per_rabbit={})
    made = []
    for scale in range(1, 11):
        found = breakdown(
            XFS, [entry("ost", "AllocateAcrossServers", 64 * GIB, scale=scale)]
        )
        (only,) = db.build_allocation_sets(found, on)
        made.append(sum(places(only).values()))
    assert made == sorted(made)
    assert (made[0], made[-1]) == (1, 16)
    assert 8 <= made[8 - 1] < 16


LUSTRE = "#DW jobdw capacity=1TiB type=lustre name=example"
LOCATIONS = [
    {
        "access": [
            {"priority": "mandatory", "type": "network"},
            {"priority": "bestEffort", "type": "physical"},
        ],
        "reference": {**SERVERS, "fieldPath": "servers.spec.allocationSets[0]"},
    },
    {
        "access": [{"priority": "mandatory", "type": "network"}],
        "reference": {**SERVERS, "fieldPath": "servers.spec.allocationSets[1]"},
    },
]


def test_compute_nodes_the_example_asks_for_a_network_and_wishes_for_pcie() -> None:
    found = breakdown(LUSTRE, locations=LOCATIONS)
    first, second = found.locations
    assert first.access == (
        Access("network", "mandatory"),
        Access("physical", "bestEffort"),
    )
    assert (second.index, second.access) == (1, (Access("network", "mandatory"),))
    system = one_rabbit_each("h1", "h2")
    assert db.location_constraint([found], {}, system) is None
    servers = {OWN: placed("r1", "r1")}
    unmet = db.check_locations([found], servers, ["h1", "h2"], system)
    assert unmet == (
        "DirectiveBreakdown default/example-0: h2 without a PCIe connection to"
        " allocation set 0 of Servers default/example-0",
    )


def one_rabbit_each(*hosts: str) -> mapping.RabbitMapping:
    rabbit_of = {host: f"r{host[1:]}" for host in hosts}
    return mapping.parse(
        {
            "computes": rabbit_of,
            "rabbits": {
                rabbit: {"capacity": GIB, "hostlist": host}
                for host, rabbit in rabbit_of.items()
            },
        }
    )


def placed(*rabbits: str) -> Json:
    """Servers with one allocation in each set."""
    sets = [{"storage": [{"name": name, "allocationCount": 1}]} for name in rabbits]
    return {"spec": {"allocationSets": sets}}


def test_compute_nodes_mandatory_physical_access_narrows_down_the_nodes() -> None:
    mandatory = [{"priority": "mandatory", "type": "physical"}]
    existing = {**SERVERS, "name": "keep"}
    reference = {**existing, "fieldPath": "servers.spec.allocationSets[0]"}
    found = breakdown(
        "#DW persistentdw name=keep",
        locations=[{"access": mandatory, "reference": reference}],
    )
    servers = {Reference("default", "keep"): placed("r2")}
    system = one_rabbit_each("h1", "h2", "h3")
    assert db.location_constraint([found], servers, system) == {"hostlist": ["h2"]}
    with pytest.raises(AllocationError, match="h1 without a PCIe .* is mandatory"):
        db.check_locations([found], servers, ["h1"], system)
    with pytest.raises(AllocationError, match=r"asks for 2 nodes, but only h2 \(1\)"):
        db.location_constraint([found], servers, system, nodes=2)


@pytest.mark.parametrize("field", ["requires", "requiredDaemons"])
def test_required_daemons_are_named_by_the_breakdown(field: str) -> None:
    directive = "#DW jobdw type=xfs capacity=1GB name=stg1 requires=copy-offload"
    status: Json = {field: ["copy-offload"]}
    found = breakdown(directive, **status)
    assert db.required_daemons([found], ["copy-offload"]) == ("copy-offload",)


def test_valid_daemons_are_those_that_the_site_defines() -> None:
    directive = "#DW jobdw type=xfs capacity=1GB name=stg1 requires=copy-offload"
    found = breakdown(directive, requires=["copy-offload"])
    with pytest.raises(DirectiveError, match="expected one of cache, trace"):
        db.required_daemons([found], ["trace", "cache"])
