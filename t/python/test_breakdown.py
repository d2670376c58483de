# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Reading DirectiveBreakdowns, and what they say about compute nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any, Optional

import pytest
import yaml

from flux_k8s.errors import (
    AllocationError,
    BadObject,
    DirectiveError,
    StorageUnavailable,
)
from flux_k8s.formats import hostlist
from flux_k8s.formats.directives import GIB
from flux_k8s.json_reader import Reader
from flux_k8s.objects import mapping
from flux_k8s.ports import Json
from flux_k8s.rules.directivebreakdown.breakdown import (
    STRATEGIES,
    AllocationSet,
    Breakdown,
    Location,
    Reference,
    parse,
)
from flux_k8s.rules.directivebreakdown.compute import (
    check_locations,
    check_storage_of_nodes,
    existing_servers,
    near_hosts,
    required_daemons,
    wished_hosts,
)
from support.objects import changed
from support.tree import recorded

RABBIT = "dataworkflowservices.github.io/storage=Rabbit"

XFS: Json = yaml.safe_load(
    """
metadata: {name: example-0, namespace: default}
spec: {directive: "#DW jobdw capacity=1GiB type=xfs name=example", userID: 7900}
status:
  ready: true
  storage:
    lifetime: job
    reference: {kind: Servers, name: example-0, namespace: default}
    allocationSets:
    - allocationStrategy: AllocatePerCompute
      label: xfs
      minimumCapacity: 1073741824
      constraints:
        labels: [Rabbit, firmware_test, fast]
        colocation: [{type: exclusive, key: lustre-mgt}]
        count: 5
        scale: 8
  compute:
    constraints:
      location:
      - access:
        - {priority: mandatory, type: network}
        - {priority: bestEffort, type: physical}
        reference:
          fieldPath: servers.spec.allocationSets[0]
          kind: Servers
          name: example-0
          namespace: default
  requires: [copy-offload]
"""
)

HOSTS_OF = {"r1": ["h1", "h2"], "r2": ["h3", "h4"], "r3": ["h5"]}
SYSTEM = mapping.assemble(HOSTS_OF, dict.fromkeys(HOSTS_OF, 1))

KEEP = Reference("default", "keep1")
OWN = Reference("default", "own-0")


def near(servers: Reference, *access: tuple[str, str], index: int = 0) -> Location:
    return Location(servers, index, dict(access))


def placed(*sets: str) -> Json:
    """A Servers object whose sets are on these Rabbits; a Rabbit has as many
    allocations as it is there times."""
    return {
        "spec": {
            "allocationSets": [
                {
                    "label": "ost",
                    "storage": [
                        {"name": name, "allocationCount": number}
                        for name, number in Counter(names.split()).items()
                    ],
                }
                for names in sets
            ]
        }
    }


def test_the_example_of_storage_nodes_is_read() -> None:
    breakdown = parse(XFS)
    assert breakdown == Breakdown(
        name="DirectiveBreakdown default/example-0",
        directive="#DW jobdw capacity=1GiB type=xfs name=example",
        lifetime="job",
        allocation_sets=(
            AllocationSet(
                label="xfs",
                strategy=STRATEGIES["AllocatePerCompute"],
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
    obj = changed(XFS, "status.requires", ...)
    obj["status"]["requiredDaemons"] = ["copy-offload"]
    assert parse(obj).requires == ("copy-offload",)


def test_an_empty_colocation_key_is_a_key() -> None:
    place = "status.storage.allocationSets.0.constraints.colocation.0.key"
    breakdown = parse(changed(XFS, place, ""))
    assert breakdown.allocation_sets[0].colocation == ("",)


@pytest.mark.parametrize("order", [1, -1])
def test_a_location_that_is_mandatory_and_best_effort_is_mandatory(order: int) -> None:
    access = [{"type": "physical", "priority": p} for p in ("mandatory", "bestEffort")]
    place = "status.compute.constraints.location.0.access"
    (location,) = parse(changed(XFS, place, access[::order])).locations
    assert location.access == {"physical": "mandatory"}


XFS_SET = ("AllocatePerCompute", 11051991040, None, None, ())
OST = ("AllocateAcrossServers", 50 * GIB, None, 5, ())
MGTMDT = ("AllocateAcrossServers", 5 * GIB, 1, None, ("lustre-mgt",))
NEAR = (0, ("physical", "mandatory"))


@pytest.mark.parametrize(
    ("name", "lifetime", "sets", "servers", "locations"),
    [
        ("xfs", "job", {"xfs": XFS_SET}, None, [NEAR]),
        (
            "gfs2",
            "job",
            {"gfs2": XFS_SET},
            None,
            [(0, ("network", "mandatory"), ("physical", "mandatory"))],
        ),
        ("raw", "job", {"raw": XFS_SET}, None, [NEAR]),
        (
            "lustre",
            "job",
            {"ost": OST, "mgtmdt": MGTMDT},
            None,
            [
                (0, ("network", "mandatory"), ("physical", "bestEffort")),
                (1, ("network", "mandatory")),
            ],
        ),
        # NNF says that nodes need PCIe connections to the sets of Lustre
        (
            "persistentdw",
            None,
            {},
            KEEP,
            [(0, ("network", "mandatory")), (1, ("network", "mandatory"))],
        ),
        (
            "create-persistent",
            "persistent",
            {"ost": (OST[0], 20 * GIB, *OST[2:]), "mgtmdt": MGTMDT},
            KEEP,
            [],
        ),
    ],
)
def test_a_recorded_breakdown_is_read(
    name: str, lifetime: Any, sets: Any, servers: Optional[Reference], locations: Any
) -> None:
    own = Reference("default", f"rec-{name}-0")
    breakdown = parse(recorded(name, "DirectiveBreakdown")[-1])
    assert breakdown.lifetime == lifetime
    assert breakdown.servers == ((servers or own) if sets else None)
    assert breakdown.locations == tuple(
        near(servers or own, *access, index=index) for index, *access in locations
    )
    assert breakdown.allocation_sets == tuple(
        AllocationSet(label, STRATEGIES[strategy], size, (RABBIT,), keys, count, scale)
        for label, (strategy, size, count, scale, keys) in sets.items()
    )


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
        (f"{SETS}.0.minimumCapacity", 1.5, "minimumCapacity is 1.5"),
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
        parse(changed(XFS, place, value))
    assert str(caught.value).startswith("DirectiveBreakdown")
    assert words in str(caught.value)


def test_an_integer_without_limits_is_called_so() -> None:
    with pytest.raises(BadObject, match="a is true, expected an integer$"):
        Reader("x", {"a": True}).integer("a")


# Where nodes are


def using(*locations: Location) -> list[Breakdown]:
    return [Breakdown("b", "#DW ...", servers=OWN, locations=locations)]


PHYSICAL = ("physical", "mandatory")
TWO_SETS = using(near(KEEP, PHYSICAL), near(KEEP, PHYSICAL, index=1))
PERSISTENT = using(near(KEEP, PHYSICAL))
NETWORK = using(near(KEEP, ("network", "mandatory"), ("physical", "bestEffort")))


@pytest.mark.parametrize(
    ("breakdowns", "servers", "nodes", "hosts"),
    [
        (TWO_SETS, placed("r1 r2", "r2 r3"), 1, "h[3-4]"),
        # Each node finds an allocation on its Rabbit
        (PERSISTENT, placed("r1 r1 r2"), 1, "h[1-4]"),
        (PERSISTENT, placed("r1 r1 r2"), 2, "h[1-3]"),
        (PERSISTENT, placed("r1 r2 r2"), 2, "h[1,3-4]"),
        (PERSISTENT, placed("r1 r1 r2"), 3, "h[1-3]"),
        (PERSISTENT, placed("r1 r2"), 2, "h[1,3]"),
        # Nodes may share allocations: DWS knows
        (PERSISTENT, placed("r1 r1 r2"), 4, "h[1-4]"),
        (NETWORK, placed("r1"), 1, None),
        (using(near(OWN, PHYSICAL)), placed("r1"), 1, None),
    ],
)
def test_existing_storage_narrows_down_the_nodes_before_scheduling(
    breakdowns: list[Breakdown], servers: Json, nodes: int, hosts: Optional[str]
) -> None:
    found = near_hosts(breakdowns, {KEEP: servers}, SYSTEM, nodes)
    assert found == (None if hosts is None else {*hostlist.decode(hosts)})


@pytest.mark.parametrize(
    ("breakdowns", "servers", "error", "words"),
    [
        (PERSISTENT, "r1 r1 r1", AllocationError, r"for 4 nodes, but only h.* \(2\)"),
        (TWO_SETS, "r1; r2", AllocationError, "no compute node has the PCIe connec"),
        (TWO_SETS, None, AllocationError, "Servers default/keep1, which the location"),
        (
            *(PERSISTENT, "gone", StorageUnavailable),
            "storage of default/keep1 is on gone, which the rabbit mapping lacks",
        ),
        (TWO_SETS, "r1", BadObject, "an array with an entry 1"),
    ],
)
def test_storage_that_nodes_cannot_reach_is_an_error(
    breakdowns: list[Breakdown],
    servers: Optional[str],
    error: type[Exception],
    words: str,
) -> None:
    made = {} if servers is None else {KEEP: placed(*servers.split(";"))}
    with pytest.raises(error, match=words):
        near_hosts(breakdowns, made, SYSTEM, nodes=4)


def test_it_is_known_where_nodes_had_better_be() -> None:
    assert wished_hosts(NETWORK, {}, SYSTEM) is None
    assert existing_servers(NETWORK) == (KEEP,)
    servers = {KEEP: placed("r1")}
    assert wished_hosts(NETWORK, servers, SYSTEM) == {"h1", "h2"}


def test_connections_to_own_storage_are_checked_once_it_is_placed() -> None:
    check, servers = check_locations, {OWN: placed("r1")}
    mandatory = using(near(OWN, PHYSICAL))
    assert check(mandatory, servers, ["h1", "h2"], SYSTEM) == ()
    words = r"h\[3,5\] without a PCIe connection .* is mandatory"
    with pytest.raises(AllocationError, match=words):
        check(mandatory, servers, ["h1", "h3", "h5"], SYSTEM)
    wished = using(near(OWN, ("physical", "bestEffort")))
    lacks = "h3 without a PCIe connection to allocation set 0"
    assert check(wished, servers, ["h1", "h3"], SYSTEM) == (
        f"b: {lacks} of Servers default/own-0",
    )
    assert check(wished, {}, ["h1"], SYSTEM) == ()


def test_storage_that_was_made_ahead_has_an_allocation_for_each_node() -> None:
    check, servers = check_storage_of_nodes, placed("r1 r2 r2")
    servers["spec"]["allocationSets"][0].update(label="xfs", allocationSize=GIB)
    sets = (AllocationSet("xfs", STRATEGIES["AllocatePerCompute"], GIB),)
    made = [Breakdown("b", "#DW ...", allocation_sets=sets, servers=OWN)]
    check(made, {OWN: servers}, {"h1": "r1", "h3": "r2", "h4": "r2"}, SYSTEM)
    with pytest.raises(AllocationError, match="2 nodes below r1, .* made for 1 there"):
        check(made, {OWN: servers}, {"h1": "r1", "h2": "r1"}, SYSTEM)


def test_required_daemons_are_those_of_all_directives() -> None:
    breakdowns = [
        Breakdown("b", "#DW a", requires=("copy-offload", "x")),
        Breakdown("b", "#DW b", requires=("x",)),
    ]
    known = ["y", "x", "copy-offload"]
    found = required_daemons(breakdowns, known)
    assert found == ("copy-offload", "x")


def test_an_unknown_daemon_is_refused_with_those_that_are_known() -> None:
    breakdown = Breakdown("b", "#DW jobdw requires=zap", requires=("zap",))
    with pytest.raises(DirectiveError, match="zap .*expected one of copy-offload, x"):
        required_daemons([breakdown], ["x", "copy-offload"])
    with pytest.raises(DirectiveError, match="expected no requires= at all"):
        required_daemons([breakdown], [])
