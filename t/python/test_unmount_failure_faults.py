# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""With ``unmount_failure = "keep"``, what happens when something else fails as well:
the module, Kubernetes, the program of the site, or another node."""

from __future__ import annotations

import dataclasses
import json
from typing import Callable, Optional
from unittest.mock import Mock

import pytest

from flux_k8s.config.table import Config
from flux_k8s.control.coroutines import drive
from flux_k8s.dws.workflowview import NODES_RELEASED
from flux_k8s.ports import KubeError
from flux_k8s.rabbits.fences import Fences
from flux_k8s.rfc.jobid import f58
from flux_k8s.rfc.resourcestatus import NodeStates
from rabbitsim.dws.options import Fault
from rabbitsim.kube.direct import Fault as ApiFault
from rabbitsim.kube.direct import Faults, Request
from rabbitsim.system import VirtualSystem
from support.rabbits import drained, shown
from support.service import (
    HOUR,
    USE,
    XFS,
    desired,
    in_state,
    jobspec,
    long,
    names,
    run_until_inactive,
    running,
    settle,
)
from support.service import KEEP as PERSISTENT
from support.unmounting import (
    BAD,
    COPY,
    FENCE,
    KEEP,
    LIMIT,
    REASON,
    cancelled_while_it_mounts,
    is_kept,
    kept,
    record,
    settle_unharmed,
    submit,
    switch_off,
    system_of,
    wait,
)


@pytest.mark.parametrize("latency", [0.2, 1.0])
def test_a_module_that_is_loaded_again_mounts_no_persistent_storage_twice(
    latency: float,
) -> None:
    """It knows late of the job that has ended."""
    stuck = Fault("PostRun", "mount", node=BAD, match="*")
    system = system_of(stuck, message_latency=latency)
    system.instance.submit(jobspec(PERSISTENT, 4))
    settle(system)
    first, second = ({"hostlist": [f"compute-0[{n}]"]} for n in ("1,3", "2,4"))
    other = system.instance.submit(long([USE, COPY], 2, 3600, constraints=first))
    running(system, other)
    jobid = kept(system, (USE,), nodes=2, constraints=second)
    wait(system, 2 * HOUR)
    system.kill_module()
    system.load_module()
    wait(system, HOUR)
    assert is_kept(system, jobid) and desired(system, other) == "PostRun"


def away(system: VirtualSystem, plural: str, until: float) -> Faults:
    """Kubernetes has an object kind back only later."""

    def fault(request: Request) -> Optional[ApiFault]:
        if request.kind.plural != plural or system.loop.now() >= until:
            return None
        return ApiFault(
            error=KubeError(503, "ServiceUnavailable", "the lights are out")
        )

    return fault


def test_a_job_is_let_go_though_kubernetes_did_not_take_that_at_first() -> None:
    system, jobid = cancelled_while_it_mounts()
    refused: list[Request] = []

    def fault(request: Request) -> Optional[ApiFault]:
        if len(refused) > 2 or NODES_RELEASED not in json.dumps(request.body):
            return None
        refused.append(request)
        return ApiFault(error=KubeError(500, "InternalError", "etcd has no leader"))

    assert system.service_kube is not None
    system.service_kube.faults = fault
    wait(system, HOUR)
    assert len(refused) == 3 and "clean" in names(system, jobid)
    assert drained(system) == {BAD: f"{f58(jobid)}: {REASON}"}
    settle_unharmed(system)


def test_a_job_that_is_let_go_waits_until_servers_are_listed() -> None:
    system, jobid = cancelled_while_it_mounts()
    wait(system, LIMIT / 2)
    system.kill_module()
    wait(system, LIMIT)
    system._faults = away(system, "servers", system.loop.now() + 30.0)
    system.load_module()
    wait(system, HOUR)
    assert desired(system, jobid) == "Teardown" and "clean" in names(system, jobid)
    settle_unharmed(system)


def test_a_job_whose_storage_is_kept_ends_when_servers_are_listed() -> None:
    system = system_of()
    jobid = submit(system)
    assert system.loop.run(in_state(system, "PostRun"), timeout=HOUR)
    system.kill_module()
    wait(system, HOUR)
    system._faults = away(system, "servers", system.loop.now() + 30.0)
    system.load_module()
    wait(system, HOUR)
    assert is_kept(system, jobid) and set(drained(system)) == {BAD}
    switch_off(system)
    settle_unharmed(system)


def test_persistent_storage_of_a_job_that_was_let_go_is_not_mounted_twice() -> None:
    system, jobid = cancelled_while_it_mounts(dw=USE)
    run_until_inactive(system, jobid)
    other = submit(system, (USE, COPY), 3)
    wait(system, HOUR)
    assert desired(system, jobid) == "Teardown" and "alloc" not in names(system, other)
    system.kill_module()
    system.load_module()
    wait(system, 600.0)
    assert desired(system, jobid) == "Teardown" and "alloc" not in names(system, other)
    settle_unharmed(system)
    assert "start" in names(system, other)


@pytest.mark.parametrize("restart", [False, True])
def test_teardown_does_without_a_node_that_the_site_has_fenced(restart: bool) -> None:
    system, jobid = cancelled_while_it_mounts({**KEEP, "fence_command": [FENCE]})
    fenced: list[str] = []
    system.instance.programs[FENCE] = lambda arguments: "\n".join(fenced)
    run_until_inactive(system, jobid)
    found = record(system, jobid)
    if restart:
        system.kill_module()
        system.load_module()
    wait(system, 600.0)
    assert desired(system, jobid) == "Teardown" and shown(system) == {}
    fenced.append(BAD)
    wait(system, 65.0)
    assert shown(system) == {BAD: "Disabled"}
    settle(system, 60.0)
    assert record(system, jobid) == found


def test_without_keep_a_node_that_dws_passes_over_in_teardown_is_drained() -> None:
    """DWS has the nodes unmount a second file system after the first: in Teardown, if a
    node has not unmounted the first one."""
    system = system_of(config={"unmount_failure": "teardown"})
    jobid = submit(system, (XFS, XFS.replace("p1", "p2")))
    assert system.loop.run(in_state(system, "Teardown"), timeout=HOUR)
    assert set(drained(system)) == {BAD}
    world = system.controllers._world
    stuck = Fault("PostRun", "mount", node="compute-0[23]")
    world.options = dataclasses.replace(world.options, faults=(stuck,))
    system.instance.set_up("compute-03", False)
    run_until_inactive(system, jobid)
    assert set(drained(system)) == {BAD, "compute-03"}


def test_an_answer_that_is_older_than_the_return_of_a_node_does_not_count() -> None:
    answers: list[Callable[[str], None]] = []
    changes: list[None] = []
    flux = Mock(run_program=lambda argv, timeout, done: answers.append(done))
    config = Config.parse({"fence_command": [FENCE]})
    settings = Mock(config=config)
    fences = Fences(flux, settings, lambda: changes.append(None))

    def ask() -> None:
        drive(fences.ask([BAD]), lambda result: None, ())

    def see(*drained: str) -> None:
        reasons = dict.fromkeys(drained, "bad")
        fences.nodes_changed(NodeStates((BAD,), frozenset(), reasons, {}))

    see(BAD)
    ask()
    see()
    answers.pop()(BAD)
    assert fences.nodes == frozenset() and not changes
    ask()
    answers.pop()(BAD)
    assert fences.nodes == {BAD} and len(changes) == 1
