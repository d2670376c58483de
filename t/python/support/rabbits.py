# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Whole systems whose Rabbits and nodes break, and the requests to their scheduler."""

from __future__ import annotations

from typing import Any, Optional

from flux_k8s.config.table import Config
from flux_k8s.formats import hostlist
from flux_k8s.formats.directives import GIB
from flux_k8s.machine.wanted import FIRST_HOLD
from flux_k8s.ports import SERVERS, SYSTEMSTATUS, Json, KubeError
from rabbitsim.dws.options import Fault
from rabbitsim.dws.topology import Topology
from rabbitsim.flux.events import JobState
from rabbitsim.kube.direct import Fault as ApiFault
from rabbitsim.kube.direct import Request
from rabbitsim.system import VirtualSystem
from support.service import XFS, jobspec, settle, started

PERSISTENT = "#DW create_persistent type=xfs capacity=10GiB name=keep"


def system_of(config: Optional[Config] = None, **options: Any) -> VirtualSystem:
    """Four nodes on two Rabbits, started and settled."""
    system: VirtualSystem = started(config=config, **options)
    wait(system)
    return system


def wait(system: VirtualSystem, seconds: float = 10 * FIRST_HOLD) -> None:
    system.loop.run(timeout=seconds)


def submit(
    system: VirtualSystem,
    dw: Any = XFS,
    nodes: int = 1,
    chassis: Optional[Json] = None,
) -> int:
    """Submit a job whose tasks run for a minute; all nodes are below such a chassis, if
    there is one."""
    spec = jobspec(dw, nodes=nodes)
    if chassis is not None:
        (node,) = spec["resources"]
        spec["resources"] = [{**chassis, "with": [{**node, "count": nodes}]}]
    spec["attributes"]["system"]["exec"] = {"test": {"run_duration": "60s"}}
    if dw is None:
        del spec["attributes"]["system"]["dw"]
    return system.instance.submit(spec)


def run_job(system: VirtualSystem, nodes: int = 1, dw: Any = XFS) -> Optional[str]:
    """Submit a job. The nodes that it got at once, None if it waits."""
    jobid = submit(system, dw, nodes)
    wait(system)
    return hosts(system, jobid)


def hosts(system: VirtualSystem, jobid: int) -> Optional[str]:
    R = system.instance.job(jobid).R
    return None if R is None else R["execution"]["nodelist"][0]


def marked(system: VirtualSystem, name: str = "badrabbit") -> str:
    nodes = system.instance.scheduler.pool.nodes
    return hostlist.encode(node.host for node in nodes if name in node.dynamic)


def drained(system: VirtualSystem) -> dict[str, str]:
    nodes = system.instance.scheduler.pool.nodes
    return {n.host: n.drained for n in nodes if n.drained is not None}


def requests(system: VirtualSystem) -> dict[str, int]:
    """The requests to Fluxion since this was last asked."""
    counter = system.instance.fluxion.requests
    result = dict(counter)
    counter.clear()
    return result


def set_status(system: VirtualSystem, rabbit: str, status: str) -> None:
    system.controllers.rabbits.set_status(rabbit, status)


def set_link(system: VirtualSystem, host: str, up: bool) -> None:
    system.controllers.rabbits.set_link(host, up)


def disable(system: VirtualSystem, host: str, status: str = "Disabled") -> None:
    """What an administrator does with kubectl."""
    body = {"data": {"nodes": {host: status}}}
    system.store.merge_patch(SYSTEMSTATUS, "default", "default", body)


class Unseen:
    """A fault: the watch of Servers fails, for as long as it is ``on``."""

    def __init__(self, status: int, on: bool = True) -> None:
        self.status = status
        self.on = on

    def __call__(self, request: Request) -> Optional[ApiFault]:
        if not (self.on and request.verb == "watch" and request.kind == SERVERS):
            return None
        return ApiFault(error=KubeError(self.status, "Unseen", "no list"))


def stats(system: VirtualSystem) -> Json:
    assert system.service is not None
    answers: list[Json] = []
    system.instance.request(
        "dws.stats-get", {}, lambda errnum, text, payload: answers.append(payload or {})
    )
    system.loop.run(lambda: bool(answers), timeout=1.0)
    result: Json = answers[0]["rabbits"]
    return result


SMALL = Topology.regular(4, 2, capacity=64 * GIB)
"""Of its Rabbits each ``ssd`` is taken out of service by itself; those of the usual
topology are so large that their nodes are marked instead."""


def small(**options: Any) -> VirtualSystem:
    return system_of(topology=SMALL, **options)


def finish(system: VirtualSystem, dw: Any) -> None:
    jobid = system.instance.submit(jobspec(dw, nodes=1))
    settle(system)
    assert system.instance.job(jobid).state is JobState.INACTIVE


def ssds_free(system: VirtualSystem) -> list[int]:
    pool = system.instance.scheduler.pool
    return [pool.free("ssd", chassis.index) for chassis in pool.chassis]


def shown(system: VirtualSystem) -> dict[str, str]:
    """The nodes that are not Enabled."""
    nodes = system.store.get(SYSTEMSTATUS, "default", "default")["data"]["nodes"]
    return {host: status for host, status in nodes.items() if status != "Enabled"}


STATES = {"Setup": 0.1, "DataIn": 0.1, "PreRun": 0.2, "PostRun": 0.1}
MOUNT = Fault("PreRun", "mount", node="compute-04", message="no such device")
