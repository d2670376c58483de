# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reading DirectiveBreakdowns (seed 000), and what they say about compute nodes."""

from __future__ import annotations

import json
import random
from typing import Any, Optional

import pytest

from flux_k8s.dws import directivebreakdown, mapping
from flux_k8s.dws.directivebreakdown import (
    Access,
    AllocationSet,
    Breakdown,
    Location,
    Reference,
)
from flux_k8s.dws.workflowview import WorkflowView
from flux_k8s.errors import (
    AllocationError,
    BadObject,
    DirectiveError,
    NotReady,
    StorageUnavailable,
)
from flux_k8s.jobs.breakdownreader import BreakdownReader
from flux_k8s.jobs.workflowinfo import Goal, WorkflowInfo
from flux_k8s.json_reader import Reader
from flux_k8s.ports import Json
from rabbitsim.kube.direct import DirectKube
from rabbitsim.kube.store import Store
from rabbitsim.loop import VirtualLoop
from support import objects
from support.tree import RECORDED

RABBIT = "dataworkflowservices.github.io/storage=Rabbit"

XFS: Json = {
    "metadata": {"name": "example-0", "namespace": "default"},
    "spec": {
        "directive": "#DW jobdw capacity=1GiB type=xfs name=example",
        "userID": 7900,
    },
    "status": {
        "ready": True,
        "storage": {
            "allocationSets": [
                {
                    "allocationStrategy": "AllocatePerCompute",
                    "label": "xfs",
                    "minimumCapacity": 1073741824,
                    "constraints": {
                        "labels": ["Rabbit", "firmware_test", "fast"],
                        "colocation": [{"type": "exclusive", "key": "lustre-mgt"}],
                        "count": 5,
                        "scale": 8,
                    },
                }
            ],
            "lifetime": "job",
            "reference": {
                "kind": "Servers",
                "name": "example-0",
                "namespace": "default",
            },
        },
        "compute": {
            "constraints": {
                "location": [
                    {
                        "access": [
                            {"priority": "mandatory", "type": "network"},
                            {"priority": "bestEffort", "type": "physical"},
                        ],
                        "reference": {
                            "fieldPath": "servers.spec.allocationSets[0]",
                            "kind": "Servers",
                            "name": "example-0",
                            "namespace": "default",
                        },
                    }
                ]
            }
        },
        "requires": ["copy-offload"],
    },
}

SYSTEM = mapping.parse(
    {
        "computes": {"h1": "r1", "h2": "r1", "h3": "r2", "h4": "r2", "h5": "r3"},
        "rabbits": {
            "r1": {"capacity": 1, "hostlist": "h[1-2]"},
            "r2": {"capacity": 1, "hostlist": "h[3-4]"},
            "r3": {"capacity": 1, "hostlist": "h5"},
        },
    }
)

KEEP = Reference("default", "keep1")
OWN = Reference("default", "own-0")


def recorded(name: str) -> list[Json]:
    """The objects of a recording, the last version of each that is ready."""
    path = RECORDED / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"there is no {path}")
    found = {}
    for line in path.read_text().splitlines():
        obj = json.loads(line).get("object", {})
        ready = (obj.get("status") or {}).get("ready")
        if obj.get("kind") == "DirectiveBreakdown" and ready:
            found[obj["metadata"]["name"]] = obj
    return list(found.values())


def changed(place: str, value: Any) -> Json:
    """XFS with another value at a dotted place; ``...`` takes the field away."""
    return objects.changed(XFS, place, value)


def near(servers: Reference, *access: tuple[str, str], index: int = 0) -> Location:
    return Location(servers, index, tuple(Access(*pair) for pair in access))


def placed(*sets: list[str]) -> Json:
    """A Servers object whose sets are on these Rabbits."""
    return {
        "spec": {
            "allocationSets": [
                {"storage": [{"name": name, "allocationCount": 1} for name in names]}
                for names in sets
            ]
        }
    }


def test_the_example_of_storage_nodes_is_read() -> None:
    breakdown = directivebreakdown.parse(XFS)
    assert breakdown == Breakdown(
        name="DirectiveBreakdown default/example-0",
        directive="#DW jobdw capacity=1GiB type=xfs name=example",
        lifetime="job",
        allocation_sets=(
            AllocationSet(
                label="xfs",
                strategy="AllocatePerCompute",
                minimum_capacity=2**30,
                labels=("Rabbit", "firmware_test", "fast"),
                colocation=("lustre-mgt",),
                count=5,
                scale=8,
            ),
        ),
        servers=Reference("default", "example-0"),
        locations=(
            near(
                Reference("default", "example-0"),
                ("network", "mandatory"),
                ("physical", "bestEffort"),
            ),
        ),
        requires=("copy-offload",),
    )


def test_required_daemons_is_the_older_name_of_requires() -> None:
    obj = changed("status.requires", ...)
    obj["status"]["requiredDaemons"] = ["copy-offload"]
    assert directivebreakdown.parse(obj).requires == ("copy-offload",)


def test_an_empty_colocation_key_is_a_key() -> None:
    place = "status.storage.allocationSets.0.constraints.colocation.0.key"
    breakdown = directivebreakdown.parse(changed(place, ""))
    assert breakdown.allocation_sets[0].colocation == ("",)


@pytest.mark.parametrize("name", ["xfs", "gfs2", "raw"])
def test_a_recorded_file_system_per_node_has_one_set(name: str) -> None:
    (obj,) = recorded(name)
    breakdown = directivebreakdown.parse(obj)
    assert breakdown.allocation_sets == (
        AllocationSet(name, "AllocatePerCompute", 11051991040, (RABBIT,)),
    )
    assert breakdown.locations[0].asks_for("physical", "mandatory")


def test_a_recorded_lustre_has_targets_and_a_metadata_server() -> None:
    (obj,) = recorded("lustre")
    breakdown = directivebreakdown.parse(obj)
    ost, mgtmdt = breakdown.allocation_sets
    assert (ost.label, ost.scale, ost.count) == ("ost", 5, None)
    assert (mgtmdt.label, mgtmdt.count, mgtmdt.colocation) == (
        "mgtmdt",
        1,
        ("lustre-mgt",),
    )
    assert [location.index for location in breakdown.locations] == [0, 1]


def test_a_recorded_persistentdw_has_no_storage_of_its_own() -> None:
    (obj,) = recorded("persistentdw")
    breakdown = directivebreakdown.parse(obj)
    assert breakdown.allocation_sets == ()
    assert breakdown.servers is None and breakdown.lifetime is None
    assert {location.servers for location in breakdown.locations} == {KEEP}


def test_a_recorded_create_persistent_lasts() -> None:
    (obj,) = recorded("create-persistent")
    breakdown = directivebreakdown.parse(obj)
    assert breakdown.lifetime == "persistent"
    assert breakdown.servers == KEEP and len(breakdown.allocation_sets) == 2


SETS = "status.storage.allocationSets"
PLACE = "status.compute.constraints.location"


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("metadata.name", ..., "metadata.name is missing"),
        ("spec", ..., "spec.directive is missing"),
        ("spec.directive", 5, "spec.directive is 5"),
        ("spec", "x", 'spec is "x", expected an object'),
        ("status", ..., "status.ready is missing, expected true"),
        ("status", None, "status.ready is missing"),
        ("status.ready", False, "status.ready is false, expected true"),
        ("status.ready", "true", 'status.ready is "true"'),
        ("status.storage", [], "status.storage is []"),
        ("status.storage.lifetime", "day", "one of job, persistent"),
        ("status.storage.lifetime", ..., "status.storage.lifetime is missing"),
        ("status.storage.reference", ..., "status.storage.reference is missing"),
        ("status.storage.reference.name", "", "reference.name is"),
        ("status.storage.reference.kind", "Pod", "reference.kind is"),
        (SETS, {}, f"{SETS} is {{}}, expected an array"),
        (f"{SETS}.0", None, f"{SETS}[0] is null"),
        (f"{SETS}.0.label", "", f'{SETS}[0].label is "", expected a string that'),
        (f"{SETS}.0.allocationStrategy", "Any", "one of AllocatePerCompute"),
        (f"{SETS}.0.minimumCapacity", ..., "minimumCapacity is missing"),
        (f"{SETS}.0.minimumCapacity", 0, "minimumCapacity is 0"),
        (f"{SETS}.0.minimumCapacity", -1, "minimumCapacity is -1"),
        (f"{SETS}.0.minimumCapacity", 2**63, "below 2^63"),
        (f"{SETS}.0.minimumCapacity", "1GiB", 'minimumCapacity is "1GiB"'),
        (f"{SETS}.0.minimumCapacity", True, "minimumCapacity is true"),
        (f"{SETS}.0.constraints", 3, "constraints is 3, expected an object"),
        (f"{SETS}.0.constraints.labels", "x", "constraints.labels is"),
        (f"{SETS}.0.constraints.labels", [1], "constraints.labels[0] is 1"),
        (f"{SETS}.0.constraints.count", 0, "constraints.count is 0"),
        (f"{SETS}.0.constraints.count", 2**17, "an integer from 1 to 65536"),
        (f"{SETS}.0.constraints.scale", 11, "an integer from 1 to 10"),
        (f"{SETS}.0.constraints.colocation", {}, "constraints.colocation is {}"),
        (f"{SETS}.0.constraints.colocation.0.type", "x", "one of exclusive"),
        (f"{SETS}.0.constraints.colocation.0.key", ..., "[0].key is missing"),
        (f"{PLACE}.0.access", ..., f"{PLACE}[0].access is missing"),
        (f"{PLACE}.0.access.0.type", "air", "one of physical, network"),
        (f"{PLACE}.0.access.0.priority", "low", "one of mandatory, bestEffort"),
        (f"{PLACE}.0.reference", ..., f"{PLACE}[0].reference is missing"),
        (f"{PLACE}.0.reference.fieldPath", "a[0]", "allocationSets[NUMBER]"),
        ("status.requires", "copy-offload", "status.requires is"),
        ("status.requires", [None], "status.requires[0] is null"),
    ],
)
def test_a_wrong_breakdown_is_refused_with_its_place(
    place: str, value: Any, words: str
) -> None:
    with pytest.raises(BadObject) as caught:
        directivebreakdown.parse(changed(place, value))
    assert str(caught.value).startswith("DirectiveBreakdown")
    assert words in str(caught.value)


def test_a_reader_takes_no_boolean_for_a_number() -> None:
    reader = Reader("x", {"a": {"b": 1.5, "c": True, "d": 3}})
    assert reader.number("a.b") == 1.5
    assert reader.integer("a.d") == 3
    assert reader.boolean("a.c") is True
    assert reader.optional_integer("a.e") is None
    for method in (reader.integer, reader.number):
        with pytest.raises(BadObject, match="a.c is true"):
            method("a.c")
    with pytest.raises(BadObject, match="a.d is 3, expected an object"):
        reader.text("a.d.e")


def test_existing_storage_narrows_down_the_nodes_before_scheduling() -> None:
    breakdown = Breakdown(
        "b",
        "#DW persistentdw name=keep1",
        locations=(
            near(KEEP, ("physical", "mandatory")),
            near(KEEP, ("physical", "mandatory"), index=1),
        ),
    )
    assert directivebreakdown.existing_servers([breakdown]) == (KEEP,)
    servers = {KEEP: placed(["r1", "r2"], ["r2", "r3"])}
    found = directivebreakdown.location_constraint([breakdown], servers, SYSTEM)
    assert found == {"hostlist": ["h[3-4]"]}


def persistent(counts: dict[str, int], label: str) -> dict[Reference, Json]:
    """Servers of storage that exists already."""
    storage = [{"name": name, "allocationCount": n} for name, n in counts.items()]
    return {KEEP: {"spec": {"allocationSets": [{"label": label, "storage": storage}]}}}


@pytest.mark.parametrize(
    ("label", "counts", "nodes", "hosts"),
    [
        ("xfs", {"r1": 2, "r2": 1}, 1, "h[1-4]"),
        ("xfs", {"r1": 2, "r2": 1}, 2, "h[1-2]"),
        ("raw", {"r1": 1, "r2": 2}, 2, "h[3-4]"),
        ("xfs", {"r1": 2, "r2": 1}, 3, "h[1-3]"),
        ("xfs", {"r1": 1, "r2": 1}, 2, "h[1,3]"),
        ("gfs2", {"r1": 2, "r2": 1}, 4, "h[1-4]"),
    ],
)
def test_each_node_finds_an_allocation_of_existing_storage_on_its_rabbit(
    label: str, counts: dict[str, int], nodes: int, hosts: str
) -> None:
    location = near(KEEP, ("physical", "mandatory"))
    breakdown = Breakdown("b", "#DW persistentdw name=keep1", locations=(location,))
    found = directivebreakdown.location_constraint(
        [breakdown], persistent(counts, label), SYSTEM, nodes
    )
    assert found == {"hostlist": [hosts]}


def test_more_nodes_than_existing_storage_has_allocations_for_are_refused() -> None:
    location = near(KEEP, ("physical", "mandatory"))
    breakdown = Breakdown("b", "#DW persistentdw name=keep1", locations=(location,))
    servers = persistent({"r1": 1, "r2": 2}, "xfs")
    with pytest.raises(AllocationError, match=r"asks for 4 nodes, but only h.* \(3\)"):
        directivebreakdown.location_constraint([breakdown], servers, SYSTEM, nodes=4)


def test_network_best_effort_and_own_storage_narrow_down_nothing() -> None:
    breakdown = Breakdown(
        "b",
        "#DW ...",
        servers=OWN,
        locations=(
            near(KEEP, ("network", "mandatory"), ("physical", "bestEffort")),
            near(OWN, ("physical", "mandatory")),
        ),
    )
    assert directivebreakdown.location_constraint([breakdown], {}, SYSTEM) is None
    assert directivebreakdown.wished_hosts([breakdown], {}, SYSTEM) is None
    # But it is known where nodes had better be.
    assert directivebreakdown.existing_servers([breakdown]) == (KEEP,)
    servers = {KEEP: placed(["r1"])}
    wished = directivebreakdown.wished_hosts([breakdown], servers, SYSTEM)
    assert wished == set(SYSTEM.hosts_of("r1"))


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ({KEEP: placed(["r1"], ["r2"])}, "no compute node has the PCIe connection"),
        ({}, "Servers default/keep1, which the location of"),
    ],
)
def test_storage_that_no_node_can_reach_is_an_error(
    servers: dict[Reference, Json], words: str
) -> None:
    locations = tuple(
        near(KEEP, ("physical", "mandatory"), index=index) for index in (0, 1)
    )
    breakdown = Breakdown("b", "#DW persistentdw name=keep1", locations=locations)
    with pytest.raises(AllocationError, match=words):
        directivebreakdown.location_constraint([breakdown], servers, SYSTEM)


def test_storage_on_a_rabbit_that_the_mapping_lacks_is_waited_for() -> None:
    breakdown = Breakdown(
        "b", "#DW ...", locations=(near(KEEP, ("physical", "mandatory")),)
    )
    words = "storage of default/keep1 is on gone, which the rabbit mapping lacks"
    with pytest.raises(StorageUnavailable, match=words):
        directivebreakdown.location_constraint(
            [breakdown], {KEEP: placed(["gone"])}, SYSTEM
        )


def test_a_location_beyond_the_sets_of_servers_is_refused() -> None:
    location = near(KEEP, ("physical", "mandatory"), index=2)
    breakdown = Breakdown("b", "#DW ...", locations=(location,))
    with pytest.raises(BadObject, match="an array with an entry 2"):
        directivebreakdown.location_constraint([breakdown], {KEEP: placed([])}, SYSTEM)


def test_connections_to_own_storage_are_checked_once_it_is_placed() -> None:
    breakdown = Breakdown(
        "b", "#DW ...", servers=OWN, locations=(near(OWN, ("physical", "mandatory")),)
    )
    servers = {OWN: placed(["r1"])}
    check = directivebreakdown.check_locations
    assert check([breakdown], servers, ["h1", "h2"], SYSTEM) == ()
    words = r"h\[3,5\] without a PCIe connection .* is mandatory"
    with pytest.raises(AllocationError, match=words):
        check([breakdown], servers, ["h1", "h3", "h5"], SYSTEM)


def test_a_best_effort_location_is_recorded_and_not_enforced() -> None:
    breakdown = Breakdown(
        "b", "#DW ...", servers=OWN, locations=(near(OWN, ("physical", "bestEffort")),)
    )
    (note,) = directivebreakdown.check_locations(
        [breakdown], {OWN: placed(["r1"])}, ["h1", "h3"], SYSTEM
    )
    lacks = "h3 without a PCIe connection to allocation set 0"
    assert note == f"b: {lacks} of Servers default/own-0"
    assert directivebreakdown.check_locations([breakdown], {}, ["h1"], SYSTEM) == ()


def test_required_daemons_are_those_of_all_directives() -> None:
    breakdowns = [
        Breakdown("b", "#DW a", requires=("copy-offload", "x")),
        Breakdown("b", "#DW b", requires=("x",)),
    ]
    known = ["y", "x", "copy-offload"]
    found = directivebreakdown.required_daemons(breakdowns, known)
    assert found == ("copy-offload", "x")


def test_an_unknown_daemon_is_refused_with_those_that_are_known() -> None:
    breakdown = Breakdown("b", "#DW jobdw requires=zap", requires=("zap",))
    with pytest.raises(DirectiveError, match="zap .*expected one of copy-offload, x"):
        directivebreakdown.required_daemons([breakdown], ["x", "copy-offload"])
    with pytest.raises(DirectiveError, match="expected no requires= at all"):
        directivebreakdown.required_daemons([breakdown], [])


@pytest.mark.parametrize(
    "fields",
    [
        {"status": {}},
        {"status": {"state": "Proposal", "status": "DriverWait", "ready": False}},
        None,
    ],
)
def test_a_workflow_names_its_breakdowns_when_proposal_is_over(
    fields: Optional[Json],
) -> None:
    """A watch that went back may show one of before, or its end. Else a job would be
    moved on without storage."""
    view = None
    if fields is not None:
        spec = {"desiredState": "Proposal", "wlmID": "flux", "jobID": "f1"}
        metadata = {"uid": "u", "resourceVersion": "1", "name": "fluxjob-1"}
        view = WorkflowView.parse({"metadata": metadata, "spec": spec, **fields})
    info = WorkflowInfo(1, Goal.PLANNED, view=view)
    loop = VirtualLoop()
    kube = DirectKube(Store(loop.now, random.Random(1)), loop)
    reading = BreakdownReader(kube).read(info)
    with pytest.raises(
        NotReady, match="Workflow fluxjob-1: status.status is .*, expected Completed"
    ):
        reading.send(None)
