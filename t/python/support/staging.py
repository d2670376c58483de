# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs whose data is copied in before they have nodes, in the simulator."""

from __future__ import annotations

from collections import Counter
from typing import Any, Optional, Sequence

from flux_k8s.config.table import Config
from flux_k8s.formats.directives import GIB
from flux_k8s.formats.jobid import workflow_name
from flux_k8s.ports import COMPUTES, SERVERS
from flux_k8s.rules.directivebreakdown.resources import below_chassis
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault, Options, table
from rabbitsim.system import VirtualSystem
from support.service import (
    DAY,
    XFS,
    long,
    memo,
    names,
    running,
    started,
)
from support.service import time_of as time_of
from support.service import wait as wait

COPY = 600.0
"""Seconds that DataIn takes."""

COPY_IN = "#DW copy_in source=/lustre/x destination=$DW_JOB_p1/"
AHEAD = {"dw_stage": "ahead"}
ALL = Config.parse({"stage_limit": 100, "stage_user_limit": 100})


def slow(
    rabbits: int = 2,
    nodes: int = 2,
    faults: Sequence[Fault] = (),
    config: Config = ALL,
    **options: Any,
) -> VirtualSystem:
    """A system whose data moves slowly."""
    latency = table({"DataIn": COPY})
    topology = Topology.regular(rabbits * nodes, rabbits, capacity=100 * GIB)
    return started(
        topology=topology,
        options=Options(latency=latency, faults=faults),
        config=config,
        **options,
    )


def submit(
    system: VirtualSystem,
    nodes: int = 1,
    size: int = 10,
    dw: Any = None,
    urgency: int = 16,
    seconds: int = 10,
    userid: Optional[int] = None,
    chassis: int = 0,
    **system_: Any,
) -> int:
    """Submit a job with so many nodes, as many of them below each of so many chassis,
    and so many GiB for each."""
    if dw is None:
        dw = [XFS.replace("10GiB", f"{size}GiB"), COPY_IN]
    spec = long(dw, nodes, seconds, **{**AHEAD, **system_})
    spec["resources"][0]["exclusive"] = True
    if chassis:
        spec["resources"] = below_chassis(spec["resources"], chassis)
    return system.instance.submit(spec, userid=userid, urgency=urgency)


def occupy(
    system: VirtualSystem, nodes: int, seconds: int = 1200, **system_: Any
) -> int:
    """A job without storage, which runs."""
    jobid = submit(system, nodes, dw="", seconds=seconds, **system_)
    running(system, jobid)
    return jobid


def config(**table: Any) -> Config:
    return Config.parse({"stage_limit": 100, "stage_user_limit": 100, **table})


def reaches(system: VirtualSystem, jobid: int, state: str) -> None:
    def there() -> bool:
        return any(
            found["metadata"]["name"] == workflow_name(jobid)
            and found["spec"]["desiredState"] == state
            and found["status"].get("state") == state
            and found["status"]["ready"]
            for found in system.workflows()
        )

    assert system.loop.run(there, timeout=DAY), (
        names(system, jobid),
        memo(system, jobid, "rabbit_waits_for"),
        system.log[-10:],
    )


def computes(system: VirtualSystem, jobid: int) -> list[str]:
    found = system.store.get(COMPUTES, "default", workflow_name(jobid))
    return [node["name"] for node in found.get("data") or ()]


def made_for(system: VirtualSystem, jobid: int) -> Counter[str]:
    """The allocations of a job on each Rabbit."""
    servers = system.store.get(SERVERS, "default", f"{workflow_name(jobid)}-0")
    counts: Counter[str] = Counter()
    for entry in servers["spec"]["allocationSets"]:
        for storage in entry["storage"]:
            counts[storage["name"]] += storage["allocationCount"]
    return counts


def set_urgency(system: VirtualSystem, jobid: int, urgency: int) -> None:
    manager = system.instance.manager
    manager.set_urgency(jobid, urgency, manager.owner)
