# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Rabbits that are nodes of Flux themselves. They mount no storage, so jobs with
storage do not get them, unless they ask for them (``storage_node``)."""

from __future__ import annotations

import pytest

from flux_k8s.formats import rset
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.ports import COMPUTES, Json
from rabbitsim.dws import Topology
from rabbitsim.flux.events import JobState
from rabbitsim.system import VirtualSystem
from support.service import (
    LIFE,
    LUSTRE,
    XFS,
    exceptions,
    long,
    names,
    placed,
    running,
    settle_jobs,
    started,
)

CREATE = LUSTRE.replace("jobdw", "create_persistent").replace("p1", "keep")
USE = "#DW persistentdw name=keep"
ANYWHERE = {"scheduler": True}
NO_SCHEDULER = {"scheduler": False, "dynamic_properties": False}


def slots(count: int) -> list[Json]:
    """What ``flux submit -n`` asks for."""
    slot = {"type": "slot", "count": count, "label": "task"}
    return [{**slot, "with": [{"type": "core", "count": 1}]}]


def submit(system: VirtualSystem, dw: str, resources: list[Json]) -> int:
    spec = long(dw)
    spec["resources"] = resources
    return system.instance.submit(spec)


def system_of(**options: bool) -> VirtualSystem:
    """Two nodes of 4 cores below one Rabbit, which is a node as well."""
    one = Topology.regular(nodes=2, rabbits=1)
    system: VirtualSystem = started(topology=one, rabbit_nodes=True, **options)
    system.loop.run(timeout=60.0)
    return system


def hosts(system: VirtualSystem, jobid: int) -> tuple[str, ...]:
    return rset.parse(system.instance.job(jobid).R).hosts


def computes(system: VirtualSystem, jobid: int) -> set[str]:
    """The nodes that DWS mounts storage on."""
    found = system.store.get(COMPUTES, "default", workflow_name(jobid))
    return {each["name"] for each in found["data"]}


def comes_to_its_end(system: VirtualSystem, jobid: int) -> None:
    settle_jobs(system)
    assert names(system, jobid) == LIFE, exceptions(system, jobid)


@pytest.mark.parametrize("options", [ANYWHERE, NO_SCHEDULER])
def test_a_job_with_storage_waits_for_cores_of_compute_nodes(
    options: dict[str, bool],
) -> None:
    system = system_of(**options)
    comes_to_its_end(system, submit(system, CREATE, long("")["resources"]))
    first = submit(system, USE, slots(6))
    running(system, first)
    second = submit(system, USE, slots(4))
    system.loop.run(timeout=60.0)
    assert system.instance.job(second).state is JobState.SCHED
    comes_to_its_end(system, second)
    for jobid in first, second:
        assert "rabbit-01" not in hosts(system, jobid)


@pytest.mark.parametrize("options", [ANYWHERE, NO_SCHEDULER])
def test_a_job_without_storage_gets_cores_of_rabbits(options: dict[str, bool]) -> None:
    system = system_of(**options)
    spec = long("")
    del spec["attributes"]["system"]["dw"]
    jobid = system.instance.submit({**spec, "resources": slots(12)})
    running(system, jobid)
    assert hosts(system, jobid) == ("compute-01", "compute-02", "rabbit-01")


def test_whole_nodes_with_storage_are_compute_nodes_without_a_scheduler() -> None:
    system = system_of(**NO_SCHEDULER)
    first = system.instance.submit(long(XFS, nodes=2))
    running(system, first)
    assert hosts(system, first) == ("compute-01", "compute-02")
    denied = system.instance.submit(long(XFS, nodes=3))
    settle_jobs(system)
    assert "alloc" not in names(system, denied)


def with_rabbit(*nodes: Json) -> list[Json]:
    """A request for the node of a Rabbit, beside nodes."""
    cores = [{"type": "core", "count": 4}]
    rabbit = {"type": "storage_node", "count": 1, "exclusive": True, "with": cores}
    return [{"type": "chassis", "count": 1, "with": [*nodes, rabbit]}]


def test_a_job_may_ask_for_the_node_of_its_rabbit() -> None:
    system = system_of()
    jobid = submit(system, XFS, with_rabbit(*long("")["resources"]))
    running(system, jobid)
    assert hosts(system, jobid) == ("compute-01", "rabbit-01")
    assert computes(system, jobid) == {"compute-01"}
    assert placed(system)["xfs"] == {"rabbit-01": 1}
    comes_to_its_end(system, jobid)


def test_a_job_that_asks_for_rabbits_only_fails_with_the_reason() -> None:
    system = system_of()
    comes_to_its_end(system, submit(system, CREATE, long("")["resources"]))
    jobid = submit(system, USE, with_rabbit())
    settle_jobs(system)
    (exception,) = exceptions(system, jobid)
    assert "all nodes of the job are Rabbits" in exception["note"]
