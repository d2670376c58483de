# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What users may ask for: ``rabbit.policy`` and its neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from flux_k8s.config.policy import check_maximums, check_request
from flux_k8s.config.table import Config
from flux_k8s.errors import DirectiveError
from flux_k8s.formats.directives import parse_attribute
from flux_k8s.objects.storagerequest import StorageRequest
from flux_k8s.objects.workflowdirectives import CREATING
from flux_k8s.rules.directivebreakdown.breakdown import (
    STRATEGIES,
    AllocationSet,
    Breakdown,
)
from support.service import LIFE, exceptions, jobspec, names, settle, started

OWNER = 500
USER = 4711
XFS = "#DW jobdw type=xfs capacity={} name={}"
LUSTRE = "#DW jobdw type=lustre capacity={} name={}"
KEEP = "#DW create_persistent type=lustre capacity={} name={}"
LUSTRE_SETS = ["AllocatePerServer", "AllocateAcrossServers"]


def limits(**maximums: float) -> dict[str, Any]:
    return {"policy": {"maximums": maximums}}


def check(
    dw: Any, table: dict[str, Any], nodes: Any = 2, userid: int = USER, **other: Any
) -> None:
    """At the submission of a job."""
    config = Config.parse({"restrict_persistent_creation": False, **table})
    resources = [{"type": "node", "count": nodes, "with": []}]
    request = StorageRequest(
        userid, parse_attribute(dw, config.presets), other.get("resources", resources)
    )
    check_request(request, config, OWNER)


def propose(dw: Any, table: dict[str, Any], nodes: int) -> None:
    """When DWS has broken down its directives. Each node gets its own xfs, gfs2 or
    raw; of lustre each Rabbit has metadata, and all nodes share the rest."""
    config = Config.parse(table)
    breakdowns = []
    for each in parse_attribute(dw, config.presets):
        lustre = each.arguments.get("type") == "lustre"
        names = LUSTRE_SETS if lustre else ["AllocatePerCompute"]
        sets = [AllocationSet("x", STRATEGIES[name], each.capacity) for name in names]
        made = tuple(sets) if each.command in CREATING else ()
        breakdowns.append(Breakdown("b", each.text, allocation_sets=made))
    check_maximums(breakdowns, nodes, config)


LUSTRE_OVER = "25 GiB of lustre per node, on 4 nodes; the limit is 20 GiB per node"
TWICE = [XFS.format("6GiB", "a"), XFS.format("6GiB", "b")]
KEPT = [LUSTRE.format("30GiB", "a"), KEEP.format("30GiB", "b")]
EXTERNAL = "#DW create_persistent type=lustre name=a"
XFS_OVER = "11 GiB of xfs per node; the limit is 10 GiB per node"
TWICE_OVER = "6 GiB of xfs per node, 12 GiB with those before it; the limit is 10 GiB"

# Directives, on how many nodes, and what is said of the last: at the submission, where
# the nodes may share it all, and in Proposal. The maximums are 10 GiB of xfs, 20 of
# lustre and none of gfs2.

ASKED: list[tuple[Any, Any, str, str]] = [
    (XFS.format("11GiB", "a"), 1, XFS_OVER, XFS_OVER),
    (XFS.format("11GiB", "a"), 4, "", XFS_OVER),
    (XFS.format("44GiB", "a"), 4, XFS_OVER.replace(";", ", on 4 nodes;"), "44 GiB of"),
    ("big", 1, *["1024 GiB of xfs per node; the limit is 10 GiB per node"] * 2),
    (LUSTRE.format("100GiB", "a"), 4, LUSTRE_OVER, LUSTRE_OVER),
    (LUSTRE.format("100GiB", "a"), {"min": 4, "max": 100}, LUSTRE_OVER, ""),
    (KEEP.format("100GiB", "a"), 1, *["100 GiB of lustre per node; the limit is"] * 2),
    (TWICE, 1, TWICE_OVER, TWICE_OVER),
    (TWICE, 2, "", TWICE_OVER),
    (KEPT, 2, *["15 GiB of lustre per node, on 2 nodes, 30 GiB with those before"] * 2),
    (
        "#DW jobdw type=gfs2 capacity=1KB name=a",
        1,
        *["the limit is 0 GiB per node"] * 2,
    ),
    (XFS.format("10737419KB", "a"), 1, *["asks for 10.00000"] * 2),
    (XFS.format("10GiB", "a"), 1, "", ""),
    (XFS.format("10GiB", "a"), 4, "", ""),
    (LUSTRE.format("80GiB", "a"), 4, "", ""),
    (LUSTRE.format("20GiB", "a"), 1, "", ""),
    ("#DW jobdw type=raw capacity=100TiB name=a", 1, "", ""),  # no limit is set
    ("#DW persistentdw name=a", 1, "", ""),
    (EXTERNAL, 1, "", ""),  # no capacity
    ("#DW destroy_persistent name=a", 1, "", ""),
    ([XFS.format("6GiB", "a"), LUSTRE.format("6GiB", "b")], 1, "", ""),  # other types
]


@pytest.mark.parametrize(("dw", "nodes", "submitted", "proposed"), ASKED)
def test_a_directive_over_the_maximum_is_refused_with_limit_and_key(
    dw: Any, nodes: Any, submitted: str, proposed: str
) -> None:
    big = XFS.format("1TiB", "a")
    last = dw[-1] if isinstance(dw, list) else dw.replace("big", big)
    table = {**limits(xfs=10, lustre=20, gfs2=0), "presets": {"big": big}}
    for refuse, note in ((check, submitted), (propose, proposed)):
        if refuse is propose and not isinstance(nodes, int):
            continue
        if not note:
            refuse(dw, table, nodes)
            continue
        with pytest.raises(DirectiveError) as caught:
            refuse(dw, table, nodes)
        text = str(caught.value)
        assert note in text and "(rabbit.policy.maximums." in text
        assert text.startswith(f"{last}: ")


def test_a_maximum_of_zero_forbids_a_type_without_a_capacity_too() -> None:
    for dw in (EXTERNAL, [XFS.format("1GiB", "b"), EXTERNAL]):
        with pytest.raises(DirectiveError) as caught:
            check(dw, limits(lustre=0, xfs=1))
        error = caught.value
        assert error.problem == (
            "no job gets storage of this type (rabbit.policy.maximums.lustre)"
        )
        assert error.line[error.start : error.end] == "lustre"
    check(XFS.format("1GiB", "a"), limits(lustre=0, xfs=1))


def test_maximums_hold_for_the_instance_owner_too() -> None:
    with pytest.raises(DirectiveError):
        check(XFS.format("11GiB", "a"), limits(xfs=10), 1, userid=OWNER)


def test_the_right_to_create_persistent_storage_is_the_owners() -> None:
    restricted = {"restrict_persistent_creation": True}
    check(KEEP.format("1GiB", "a"), restricted, userid=OWNER)
    with pytest.raises(DirectiveError, match="rabbit.restrict_persistent_creation"):
        check(KEEP.format("1GiB", "a"), restricted)


def test_a_job_without_whole_nodes_counts_as_one_node() -> None:
    resources = [{"type": "slot", "count": 8, "label": "task", "with": []}]
    with pytest.raises(DirectiveError, match="100 GiB of lustre per node; the limit"):
        check(LUSTRE.format("100GiB", "a"), limits(lustre=20), resources=resources)


def test_a_new_maximum_holds_from_the_reload_on() -> None:
    system = started()
    first = system.instance.submit(jobspec(XFS.format("11GiB", "p1")))
    settle(system)
    assert system.service is not None
    system.service.reconfigure(Config.parse(limits(xfs=10)))
    second = system.instance.submit(jobspec(XFS.format("11GiB", "p1")))
    settle(system)
    assert names(system, first) == LIFE
    assert "rabbit.policy.maximums.xfs" in exceptions(system, second)[0]["note"]
