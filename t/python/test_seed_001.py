# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Seed 001, "Rabbit Near-Node Storage": what it says about allocation."""

from __future__ import annotations

import json

from flux_k8s.dws import directivebreakdown as db
from flux_k8s.dws import mapping
from flux_k8s.dws.allocatedssd import ssd_per_rabbit
from flux_k8s.dws.directives import GIB
from flux_k8s.ports import COMPUTES, Json
from flux_k8s.rfc import hostlist, rset
from support.service import jobspec, names, settle, started

PROPOSAL_BEFORE = json.loads(
    """
[
  {
    "type": "node",
    "count": 2,
    "with": [
      {
        "type": "slot",
        "count": 1,
        "label": "task",
        "with": [{"type": "core", "count": 1}]
      }
    ]
  }
]
"""
)

PROPOSAL_AFTER = json.loads(
    """
[
  {
    "type": "slot",
    "count": 2,
    "label": "rabbit",
    "with": [
      {
        "type": "node",
        "count": 1,
        "with": [
          {
            "type": "slot",
            "count": 1,
            "label": "task",
            "with": [{"type": "core", "count": 1}]
          }
        ]
      },
      {"type": "ssd", "count": 10, "exclusive": true}
    ]
  }
]
"""
)


def xfs(capacity: int) -> db.Breakdown:
    entry = db.AllocationSet("xfs", "AllocatePerCompute", capacity)
    directive = "#DW jobdw type=xfs capacity=10GiB name=p1"
    return db.Breakdown("DirectiveBreakdown default/x-0", directive, "job", (entry,))


def test_proposal_two_nodes_with_10_gib_become_slots_with_10_ssd() -> None:
    assert db.apply_breakdowns([xfs(10 * GIB)], PROPOSAL_BEFORE) == PROPOSAL_AFTER


def test_proposal_the_plugin_gets_resources_and_the_exclusion() -> None:
    """With the 300 MiB that NNF adds to 10 GiB, that is 11 ssd."""
    system = started()
    jobid = system.instance.submit(jobspec("#DW jobdw type=xfs capacity=10GiB name=p1"))
    settle(system)
    (update,) = (
        event.context
        for event in system.instance.eventlog(jobid)
        if event.name == "jobspec-update"
    )
    assert update is not None
    (slot,) = update["resources"]
    assert (slot["label"], slot["with"][1]["count"]) == ("rabbit", 11)
    assert update["attributes.system.constraints"] == {"properties": ["^badrabbit"]}


def test_setup_computes_has_the_hostnames_of_the_job() -> None:
    system = started(nodes=8, rabbits=2)
    jobid = system.instance.submit(jobspec(nodes=3))
    found: list[str] = []

    def job_runs() -> bool:
        items = system.store.list(COMPUTES, None)["items"]
        found[:] = [entry["name"] for entry in (items or [{}])[0].get("data") or []]
        return "start" in names(system, jobid)

    assert system.loop.run(job_runs, timeout=3600)
    R = system.instance.job(jobid).R
    assert tuple(found) == rset.parse(R).hosts
    settle(system)


HETCHY = {
    "computes": {
        **dict.fromkeys(hostlist.decode("hetchy[1001-1002]"), "hetchy201"),
        **dict.fromkeys(hostlist.decode("hetchy[1003-1018]"), "hetchy202"),
    },
    "rabbits": {
        "hetchy201": {"capacity": 30659987046400, "hostlist": "hetchy[1001-1002]"},
        "hetchy202": {"capacity": 30659987046400, "hostlist": "hetchy[1003-1018]"},
    },
}


def test_topology_mapping_tells_which_rabbits_a_job_has() -> None:
    system = mapping.parse(HETCHY)
    R = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0-3", "children": {"core": "0-63"}}],
            "nodelist": ["hetchy[1002-1005]"],
        },
    }
    allocation = db.job_allocation(rset.parse(R), system)
    assert allocation.nodes_per_rabbit == {"hetchy201": 1, "hetchy202": 3}
    (made,) = db.build_allocation_sets(xfs(10 * GIB), allocation)
    assert made["storage"] == [
        {"name": "hetchy201", "allocationCount": 1},
        {"name": "hetchy202", "allocationCount": 3},
    ]


def fluxion_r(*ssd_sizes: int) -> Json:
    """R as Fluxion writes it, for hetchy1003; the Rabbit's own node is there,
    as in the graphs of real systems."""
    chassis = "/hetchy/chassis1"
    vertices: list[Json] = [
        {"type": "cluster", "name": "hetchy", "paths": {"containment": "/hetchy"}},
        {
            "type": "chassis",
            "id": 1,
            "properties": {"rabbit": "hetchy202", "ssdcount": "36"},
            "paths": {"containment": chassis},
        },
        {
            "type": "node",
            "name": "hetchy1003",
            "rank": 0,
            "paths": {"containment": f"{chassis}/hetchy1003"},
        },
        {
            "type": "storage_node",
            "name": "hetchy202",
            "rank": 19,
            "properties": {"rabbit": ""},
            "paths": {"containment": f"{chassis}/hetchy202"},
        },
    ]
    for index, size in enumerate(ssd_sizes):
        vertices.append(
            {
                "type": "ssd",
                "id": index,
                "unit": "GiB",
                "size": size,
                "paths": {"containment": f"{chassis}/ssd{index}"},
            }
        )
    nodes = [{"id": str(i), "metadata": v} for i, v in enumerate(vertices)]
    return {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0", "children": {"core": "0-63"}}],
            "nodelist": ["hetchy1003"],
        },
        "scheduling": {"graph": {"nodes": nodes, "edges": []}},
    }


def test_jgf_generation_an_ssd_vertex_may_stand_for_many_gib() -> None:
    system = mapping.parse(HETCHY)
    held = ssd_per_rabbit(rset.parse(fluxion_r(793, 793)), system)
    assert held == {"hetchy202": 1586}


def test_directive_breakdown_allocation_follows_the_nodes_of_each_rabbit() -> None:
    entry = db.AllocationSet("ost", "AllocateAcrossServers", 90 * GIB)
    lustre = db.Breakdown("DirectiveBreakdown x", "#DW ...", "job", (entry,))
    on = db.Allocation(
        tuple(f"h{n}" for n in range(18)), {"hetchy201": 2, "hetchy202": 16}
    )
    (made,) = db.build_allocation_sets(lustre, on)
    assert made["storage"] == [
        {"name": "hetchy201", "allocationCount": 1},
        {"name": "hetchy202", "allocationCount": 8},
    ]
    assert made["allocationSize"] == 10 * GIB
