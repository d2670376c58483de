# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""Jobs with a node that does not unmount, and ``unmount_failure = "keep"``."""

from __future__ import annotations

import json
from typing import Any, Optional, Sequence

from flux_k8s.config.table import Config
from flux_k8s.formats.directives import GIB
from flux_k8s.objects.workflowmarks import KEPT_FOR, NODES_RELEASED
from flux_k8s.ports import Json
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault, Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.system import VirtualSystem
from support.rabbits import set_link
from support.service import (
    COPY_OUT,
    DAY,
    XFS,
    jobspec,
    run_until_inactive,
    settle,
    started,
    workflow,
)

BAD = "compute-02"
STUCK = Fault("PostRun", "mount", node=BAD)
LIMIT = 60.0
KEEP: Json = {"unmount_failure": "keep", "postrun_timeout": LIMIT}
COPY = "#DW copy_out source=$DW_PERSISTENT_keep/x destination=/lustre/x"
REASON = "Rabbit storage could not be unmounted"


def system_of(
    *faults: Fault, config: Optional[Json] = None, **options: Any
) -> VirtualSystem:
    """Two Rabbits with two nodes each."""
    latency = table({"PostRun": 0.5, "DataOut": 30.0, "Teardown": 0.5})
    return started(
        topology=Topology.regular(4, 2, capacity=200 * GIB),
        options=Options(latency=latency, faults=faults or (STUCK,)),
        config=Config.parse({**KEEP, **(config or {})}),
        **options,
    )


def submit(
    system: VirtualSystem, dw: Any = (XFS, COPY_OUT), nodes: int = 4, **more: Any
) -> int:
    return system.instance.submit(jobspec(list(dw), nodes, **more))


def wait(system: VirtualSystem, seconds: float) -> None:
    system.loop.run(timeout=seconds)


def switch_off(system: VirtualSystem, host: str = BAD) -> None:
    system.instance.set_up(host, False)
    set_link(system, host, False)


def record(system: VirtualSystem, jobid: int) -> Json:
    """The record of what became of the data."""
    found: Json = json.loads(system.instance.job(jobid).kvs["rabbit_data_out"])
    return found


def is_kept(system: VirtualSystem, jobid: int) -> bool:
    """Whether the job has ended and its storage waits for the bad node."""
    found = workflow(system, jobid)
    annotations = found["metadata"]["annotations"]
    return (
        system.instance.job(jobid).state is JobState.INACTIVE
        and found["spec"]["desiredState"] == "PostRun"
        and annotations.get(KEPT_FOR) == BAD
        and NODES_RELEASED in annotations
    )


def kept(system: VirtualSystem, dw: Any = (XFS, COPY_OUT), **more: Any) -> int:
    """Run a job to the point at which its storage is kept."""
    jobid = submit(system, dw, **more)
    run_until_inactive(system, jobid)
    assert is_kept(system, jobid)
    return jobid


def settle_unharmed(system: VirtualSystem) -> None:
    settle(system, DAY)
    assert system.controllers.harm == {}


FENCE = "/etc/flux/fenced"


def fencing(*found: str) -> tuple[VirtualSystem, list[str], list[list[str]]]:
    """A system whose site has a program that says which nodes cannot write, the nodes
    that it names, and what it was asked."""
    system = system_of(config={"fence_command": [FENCE, "-q"]})
    fenced, asked = list(found), []

    def answer(arguments: Sequence[str]) -> str:
        asked.append(list(arguments))
        return "".join(f"{host}\n" for host in fenced)

    system.instance.programs[FENCE] = answer
    return system, fenced, asked


def job_show(system: VirtualSystem, jobid: int) -> Json:
    answers: list[Json] = []
    system.instance.request(
        "dws.job-show", {"id": jobid}, lambda *answer: answers.append(answer[2] or {})
    )
    system.loop.run(lambda: bool(answers), timeout=1.0)
    return answers[0]
