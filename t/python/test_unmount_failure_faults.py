# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""With ``unmount_failure = "keep"``, what happens when something else fails as well:
the module, Kubernetes, the program of the site, or another node."""

from __future__ import annotations

import dataclasses
from typing import Optional

import pytest

from flux_k8s.config.table import Config
from flux_k8s.dws.workflowmarks import KEPT_FOR, NODES_RELEASED
from flux_k8s.ports import SYSTEMSTATUS, KubeError
from flux_k8s.rfc.jobid import f58
from rabbitsim.dws.options import Fault
from rabbitsim.kube.direct import Fault as ApiFault
from rabbitsim.kube.direct import Faults, Request
from rabbitsim.system import VirtualSystem
from support.rabbits import drained, set_link, shown
from support.records import COPY_IN
from support.service import (
    HOUR,
    USE,
    XFS,
    desired,
    exceptions,
    in_state,
    jobspec,
    lines,
    long,
    names,
    run_until_inactive,
    running,
    settle,
    workflow,
)
from support.service import KEEP as PERSISTENT
from support.unmounting import (
    BAD,
    COPY,
    FENCE,
    KEEP,
    LIMIT,
    REASON,
    STUCK,
    TWO,
    cancelled_while_it_mounts,
    fencing,
    is_kept,
    job_show,
    kept,
    record,
    refuse_mark,
    settle_unharmed,
    submit,
    switch_off,
    system_of,
    wait,
)

WELL = Fault("PostRun", "mount", node="none")


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
    refused = refuse_mark(system, NODES_RELEASED)
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


def test_a_module_that_is_loaded_in_teardown_asks_whether_a_node_is_fenced() -> None:
    """The one before it has not told DWS any more."""
    system, _, _ = fencing(BAD)
    jobid = submit(system)
    assert system.loop.run(in_state(system, "PostRun"), HOUR)
    assert system.loop.run(lambda: desired(system, jobid) == "Teardown", HOUR)
    system.kill_module()
    assert shown(system) == {}
    system.load_module()
    settle(system)
    assert set(drained(system)) == {BAD}


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


def test_what_an_older_program_has_answered_does_not_count() -> None:
    system, jobid = cancelled_while_it_mounts({**KEEP, "fence_command": [FENCE]})
    system.instance.programs[FENCE] = lambda arguments: BAD
    run_until_inactive(system, jobid)
    wait(system, 65.0)
    assert shown(system) == {BAD: "Disabled"}
    assert system.service is not None
    system.service.reconfigure(Config.parse(KEEP))
    assert lines(system, f"{BAD} is not fenced any more")


def test_of_two_bad_nodes_the_one_that_is_fenced_stays_so() -> None:
    system = system_of(
        Fault("PostRun", "mount", node="compute-0[23]"),
        config={"fence_command": [FENCE]},
    )
    system.instance.programs[FENCE] = lambda arguments: "compute-03"
    run_until_inactive(system, submit(system))
    wait(system, 2.0)
    assert shown(system) == {"compute-03": "Disabled"}
    assert not lines(system, "is not fenced any more")


def test_a_node_that_comes_back_before_it_is_disabled_keeps_the_storage() -> None:
    system = system_of(Fault("PostRun", "mount", node=BAD, match="*"))
    system.instance.submit(jobspec(PERSISTENT, 4))
    settle(system)
    jobid = kept(system, (USE,))
    kube = system.service_kube
    assert kube is not None
    kube.faults = away(system, "systemstatuses", system.loop.now() + 65.0)
    switch_off(system)
    wait(system, 61.0)
    system.instance.set_up(BAD, True)
    set_link(system, BAD, True)
    wait(system, 10.0)
    other = submit(system, (USE, COPY), 3)
    wait(system, HOUR)
    assert is_kept(system, jobid) and shown(system) == {}
    assert "alloc" not in names(system, other)
    switch_off(system)
    settle_unharmed(system)
    assert "start" in names(system, other)


def test_a_node_that_is_fenced_before_it_is_drained_is_asked_for_again() -> None:
    system, fenced, _ = fencing()
    jobid = kept(system)
    system.instance.undrain(BAD)
    fenced.append(BAD)
    kube = system.service_kube
    assert kube is not None
    kube.faults = away(system, "systemstatuses", system.loop.now() + 65.0)
    wait(system, 61.0)
    system.instance.drain("compute-04", "another reason")
    wait(system, 1.0)
    assert lines(system, f"{BAD} is not fenced any more")
    system.instance.set_up(BAD, False)
    wait(system, 10.0)
    assert is_kept(system, jobid) and shown(system) == {}
    settle(system, HOUR)
    assert record(system, jobid)["success"] is False


def test_a_node_that_is_told_later_and_does_not_unmount_is_drained_as_well() -> None:
    """DWS has it unmount the second file system when the bad node is off, after the job
    has ended."""
    other = "compute-03"
    system = system_of()
    jobid = kept(system, TWO)
    assert set(drained(system)) == {BAD}
    stuck = Fault("PostRun", "mount", node=other, duration=2 * HOUR)
    world = system.controllers._world
    world.options = dataclasses.replace(world.options, faults=(STUCK, stuck))
    switch_off(system)
    wait(system, LIMIT)
    assert set(drained(system)) == {BAD}
    wait(system, 3 * LIMIT)
    assert drained(system) == dict.fromkeys((BAD, other), f"{f58(jobid)}: {REASON}")
    annotations = workflow(system, jobid)["metadata"]["annotations"]
    assert annotations[KEPT_FOR] == "compute-[02-03]"
    system.instance.undrain(other)
    wait(system, HOUR)
    assert set(drained(system)) == {BAD} and desired(system, jobid) == "PostRun"
    settle_unharmed(system)
    assert record(system, jobid)["note"].startswith(f"{other} unmounted late")


def test_a_node_that_dws_does_not_wait_for_is_drained_at_once() -> None:
    """A person disables it, and the bad node, before it has unmounted."""
    other = "compute-03"
    system = system_of()
    jobid = kept(system, TWO)
    stuck = Fault("PostRun", "mount", node=other, duration=2 * HOUR)
    world = system.controllers._world
    world.options = dataclasses.replace(world.options, faults=(STUCK, stuck))
    disabled = {"data": {"nodes": {BAD: "Disabled", other: "Disabled"}}}
    system.store.merge_patch(SYSTEMSTATUS, "default", "default", disabled)
    wait(system, 5.0)
    assert set(drained(system)) == {BAD, other}
    annotations = workflow(system, jobid)["metadata"]["annotations"]
    assert annotations[KEPT_FOR] == "compute-[02-03]"
    assert workflow(system, jobid)["status"]["ready"] is True


@pytest.mark.parametrize("fence", [False, True])
def test_an_abort_in_teardown_keeps_the_storage_for_the_nodes_that_have_it(
    fence: bool,
) -> None:
    system, jobid = cancelled_while_it_mounts(
        {**KEEP, "postrun_timeout": 0, "fence_command": [FENCE]},
        dw=USE,
        plugin_conf={"epilog-timeout": 30.0},
    )
    fenced: list[str] = []
    system.instance.programs[FENCE] = lambda arguments: "\n".join(fenced)
    run_until_inactive(system, jobid)
    wait(system, 60.0)
    waits = job_show(system, jobid)["waits"]
    assert waits.startswith(f"{BAD} to unmount, or to be off")
    other = submit(system, (USE,), 1)
    wait(system, 600.0)
    assert "alloc" not in names(system, other)
    assert desired(system, jobid) == "Teardown" and shown(system) == {}
    if fence:
        fenced.append(BAD)
        wait(system, 65.0)
        assert shown(system) == {BAD: "Disabled"}
    settle_unharmed(system)
    assert "start" in names(system, other)


def test_a_job_that_waits_for_shared_storage_fails_before_its_prolog_does() -> None:
    """It got its nodes before another job ended whose node does not unmount."""
    first, second = ({"hostlist": [f"compute-0[{n}]"]} for n in ("1,3", "2,4"))
    system = system_of(
        Fault("PostRun", "mount", node=BAD, match="*"),
        config={"prolog_timeout": 1200},
    )
    system.instance.submit(jobspec(PERSISTENT, 4))
    settle(system)
    held = system.instance.submit(long([USE], 2, 100, constraints=second))
    running(system, held)
    world = system.controllers._world
    slow = Fault("DataIn", "slow", duration=1000.0)
    world.options = dataclasses.replace(
        world.options, faults=(*world.options.faults, slow)
    )
    other = submit(system, (USE, XFS, COPY_IN), 2, constraints=first)
    run_until_inactive(system, held)
    run_until_inactive(system, other)
    assert is_kept(system, held)
    (told,) = exceptions(system, other)
    assert f"{BAD} has not unmounted the persistent storage keep" in told["note"]
    assert "half of prolog_timeout; please submit it again" in told["note"]
    switch_off(system)
    settle_unharmed(system)


def test_a_job_that_releases_its_nodes_waits_until_servers_are_listed() -> None:
    system = system_of(WELL, config={"release": "unmounted"})
    jobid = submit(system)
    assert system.loop.run(in_state(system, "PostRun"), timeout=HOUR)
    system.kill_module()
    wait(system, 60.0)
    system._faults = away(system, "servers", system.loop.now() + 30.0)
    system.load_module()
    assert system.loop.run(in_state(system, "DataOut"), timeout=HOUR)
    assert NODES_RELEASED in workflow(system, jobid)["metadata"]["annotations"]
    settle_unharmed(system)


def test_a_module_that_is_loaded_in_teardown_knows_that_the_nodes_have_unmounted() -> (
    None
):
    """Its job ends with its storage, as it would have without that."""
    system = system_of(WELL, Fault("Teardown", "slow", duration=HOUR))
    jobid = submit(system)
    assert system.loop.run(in_state(system, "Teardown"), timeout=HOUR)
    wait(system, 2 * LIMIT)
    system.kill_module()
    system.load_module()
    wait(system, 2 * LIMIT)
    assert desired(system, jobid) == "Teardown" and "free" not in names(system, jobid)
    settle_unharmed(system)
    assert drained(system) == {}
