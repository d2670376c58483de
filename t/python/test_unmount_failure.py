# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""With ``unmount_failure = "keep"`` one node that does not unmount is one bad node: the
storage is kept until it cannot write any more, and no file system is mounted twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dwscli.page import mounts_line
from flux_k8s.config.table import Config
from flux_k8s.dws.cleanup import is_mounted, is_to_be_unmounted
from flux_k8s.dws.directives import GIB
from flux_k8s.dws.workflowmarks import KEPT_FOR
from flux_k8s.ports import CLIENTMOUNT, STORAGE, SYSTEMSTATUS, WORKFLOW, Json
from flux_k8s.rfc.jobid import f58, workflow_name
from rabbitsim.dws import Topology
from rabbitsim.dws.options import Fault, Options, table
from rabbitsim.flux.events import JobState
from rabbitsim.system import VirtualSystem
from support.rabbits import drained, set_link, shown
from support.service import (
    COPY_OUT,
    DAY,
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
    started,
)
from support.service import KEEP as PERSISTENT
from support.unmounting import (
    ALL,
    BAD,
    COPY,
    FENCE,
    LIMIT,
    REASON,
    STUCK,
    TWO,
    cancelled_while_it_mounts,
    fencing,
    has_mounted,
    is_kept,
    job_show,
    kept,
    record,
    settle_unharmed,
    submit,
    switch_off,
    system_of,
    wait,
)


def test_only_the_bad_node_is_drained_and_the_others_return_to_service() -> None:
    system = system_of()
    jobid = kept(system)
    assert drained(system) == {BAD: f"{f58(jobid)}: {REASON}"}
    assert shown(system) == {}
    (told,) = exceptions(system, jobid)
    assert (told["type"], told["severity"]) == ("dws-node-failure", 1)
    assert told["note"].startswith(f"{BAD}: PostRun took more than postrun_timeout=60s")
    assert "the storage is kept until it is unmounted there" in told["note"]
    other = system.instance.submit(long("", 3, 10))
    running(system, other)
    wait(system, HOUR)
    assert is_kept(system, jobid)


def test_the_data_goes_out_when_the_node_is_off_and_not_before() -> None:
    system = system_of()
    jobid = kept(system)
    system.instance.set_up(BAD, False)
    wait(system, HOUR)
    assert is_kept(system, jobid) and shown(system) == {}
    set_link(system, BAD, False)
    wait(system, 5.0)
    assert desired(system, jobid) == "DataOut"
    assert shown(system) == {BAD: "Disabled"}
    settle_unharmed(system)
    lost = f"{BAD} has not unmounted: what it had not written is not copied"
    found = {"success": False, "errstr": lost, "reason": "unmount-failed"}
    assert record(system, jobid) == found
    assert lines(system, f"{f58(jobid)}: its data is not out: {lost}")


def test_a_link_that_is_lost_is_not_enough_while_the_broker_lives() -> None:
    system = system_of()
    jobid = kept(system)
    set_link(system, BAD, False)
    wait(system, HOUR)
    assert is_kept(system, jobid)
    system.instance.set_up(BAD, False)
    settle_unharmed(system)


def test_a_node_that_the_site_has_fenced_does_not_keep_the_storage() -> None:
    system, fenced, asked = fencing()
    jobid = kept(system)
    wait(system, HOUR)
    assert is_kept(system, jobid) and shown(system) == {}
    assert len(asked) > 50 and {tuple(each) for each in asked} == {("-q", BAD)}
    fenced.append(BAD)
    wait(system, 61.0)
    assert desired(system, jobid) == "DataOut"
    assert shown(system) == {BAD: "Disabled"}
    assert lines(system, f"{BAD} cannot write any more, by rabbit.fence_command")
    settle(system, DAY)
    assert record(system, jobid)["success"] is False


def test_a_fenced_node_that_serves_again_is_asked_for_again() -> None:
    system, fenced, _ = fencing(BAD)
    run_until_inactive(system, submit(system))
    settle(system, DAY)
    fenced.clear()
    system.instance.undrain(BAD)
    wait(system, 60.0)
    assert shown(system) == {}
    assert lines(system, f"{BAD} is not fenced any more")
    kept(system)


def test_nodes_that_were_not_asked_for_and_no_nodes_at_all_are_no_answer() -> None:
    system, fenced, _ = fencing("compute-01", "elsewhere")
    jobid = kept(system)
    for answer in ("", "compute-[", "a b,c", "\x1b[0m"):
        fenced[:] = [answer]
        wait(system, 120.0)
        assert is_kept(system, jobid)
    assert len(lines(system, "rabbit.fence_command: ")) == 2


def test_a_fence_command_that_fails_keeps_the_storage_and_is_logged_once() -> None:
    system, _, _ = fencing()
    del system.instance.programs[FENCE]
    jobid = kept(system)
    wait(system, HOUR)
    assert is_kept(system, jobid)
    (line,) = lines(system, "rabbit.fence_command: ")
    text = "No such file or directory; no node is taken for fenced"
    assert line.endswith(f"{text} [fence-failed]")


def test_a_node_that_unmounts_late_has_its_data_copied_and_the_delay_is_reported() -> (
    None
):
    system = system_of(Fault("PostRun", "mount", node=BAD, duration=HOUR))
    jobid = kept(system)
    settle_unharmed(system)
    found = record(system, jobid)
    assert found["success"] is True
    assert found["note"].startswith(f"{BAD} unmounted late")
    assert lines(system, "its data is out; compute-02 unmounted late")


@pytest.mark.parametrize("dw", [(XFS,), (XFS, COPY_OUT)])
@pytest.mark.parametrize("end", ["kill_module", "unload_module"])
def test_a_module_that_is_loaded_again_keeps_the_storage_and_goes_on(
    dw: Any, end: str
) -> None:
    system = system_of()
    jobid = kept(system, dw)
    getattr(system, end)()
    wait(system, 600.0)
    system.load_module()
    wait(system, 600.0)
    assert is_kept(system, jobid) and shown(system) == {}
    getattr(system, end)()
    switch_off(system)
    wait(system, 600.0)
    system.load_module()
    settle_unharmed(system)


def test_other_storage_of_the_rabbit_stays_in_use_and_that_of_the_job_is_kept() -> None:
    system = system_of()
    jobid = kept(system, (ALL, COPY_OUT))
    fits = submit(system, (XFS,), 1, constraints={"hostlist": ["compute-01"]})
    too_much = system.instance.submit(long([ALL], 1, 10))
    wait(system, 300.0)
    assert is_kept(system, jobid)
    assert "clean" in names(system, fits)
    assert "alloc" not in names(system, too_much)
    switch_off(system)
    settle_unharmed(system)
    assert "start" in names(system, too_much)


def test_a_person_who_undrains_the_node_gets_it_for_other_jobs_only() -> None:
    system = system_of()
    jobid = kept(system)
    system.instance.undrain(BAD)
    other = system.instance.submit(long("", 4, 10))
    running(system, other)
    wait(system, HOUR)
    assert is_kept(system, jobid) and drained(system) == {}
    switch_off(system)
    settle_unharmed(system)


def test_the_broker_that_comes_back_before_the_link_is_lost_keeps_the_storage() -> None:
    system = system_of()
    jobid = kept(system)
    system.instance.set_up(BAD, False)
    wait(system, 60.0)
    system.instance.set_up(BAD, True)
    set_link(system, BAD, False)
    wait(system, 600.0)
    assert is_kept(system, jobid)
    system.instance.set_up(BAD, False)
    settle_unharmed(system)


def test_two_bad_nodes_are_two_bad_nodes() -> None:
    system = system_of(Fault("PostRun", "mount", node="compute-0[24]"))
    jobid = submit(system)
    run_until_inactive(system, jobid)
    reason = f"{f58(jobid)}: {REASON}"
    assert drained(system) == {BAD: reason, "compute-04": reason}
    switch_off(system, BAD)
    wait(system, 600.0)
    assert desired(system, jobid) == "PostRun"
    switch_off(system, "compute-04")
    settle_unharmed(system)
    assert record(system, jobid)["errstr"].startswith("compute-[02,04] has not")


def test_of_two_bad_nodes_the_late_one_and_the_one_that_is_off_are_reported() -> None:
    late = Fault("PostRun", "mount", node="compute-04", duration=600.0)
    system = system_of(STUCK, late)
    jobid = submit(system)
    run_until_inactive(system, jobid)
    wait(system, HOUR)
    switch_off(system)
    settle_unharmed(system)
    found = record(system, jobid)
    assert found["errstr"].startswith(f"{BAD} has not unmounted")
    assert found["note"].startswith("compute-04 unmounted late")
    assert lines(system, f"{found['errstr']}; {found['note']}")


def test_an_annotation_that_is_no_hostlist_reports_no_late_node() -> None:
    system = system_of()
    jobid = kept(system)
    body: Json = {"metadata": {"annotations": {KEPT_FOR: "compute-[02"}}}
    system.store.merge_patch(WORKFLOW, "default", workflow_name(jobid), body)
    switch_off(system)
    settle_unharmed(system)
    assert record(system, jobid)["errstr"].startswith(f"{BAD} has not unmounted")


def test_storage_of_a_job_without_copies_is_not_deleted_under_the_node() -> None:
    system = system_of()
    jobid = kept(system, (XFS,))
    wait(system, HOUR)
    assert is_kept(system, jobid)
    switch_off(system)
    settle_unharmed(system)
    assert record(system, jobid) == {"success": True}


def test_a_cancel_in_the_epilog_gives_up_the_data_and_not_the_storage() -> None:
    system = system_of()
    jobid = submit(system)
    assert system.loop.run(lambda: "epilog-start" in names(system, jobid), timeout=HOUR)
    wait(system, 5.0)
    system.instance.cancel(jobid)
    run_until_inactive(system, jobid)
    assert is_kept(system, jobid)
    assert any(
        "given up in PostRun; not copied" in told["note"]
        for told in exceptions(system, jobid)
    )
    system.kill_module()
    system.load_module()
    switch_off(system)
    settle_unharmed(system)
    assert record(system, jobid)["success"] is False


def test_data_that_is_given_up_is_reported_once() -> None:
    system = system_of(STUCK, Fault("PostRun", "error", message="it broke"))
    jobid = kept(system)
    switch_off(system)
    settle_unharmed(system)
    lost = record(system, jobid)["errstr"]
    assert lost.startswith("DWS failed in PostRun: ") and lost.count("not copied") == 1


def test_a_job_that_is_cancelled_while_it_runs_has_its_storage_unmounted_first() -> (
    None
):
    system = system_of()
    jobid = system.instance.submit(long([XFS, COPY_OUT], 4))
    running(system, jobid)
    system.instance.cancel(jobid)
    run_until_inactive(system, jobid)
    assert is_kept(system, jobid)
    switch_off(system)
    settle_unharmed(system)


def test_a_job_that_did_not_run_loses_no_data_when_it_is_cancelled_twice() -> None:
    system = system_of()
    jobid = submit(system)
    assert system.loop.run(in_state(system, "PreRun"), timeout=HOUR)
    assert system.loop.run(lambda: has_mounted(system, jobid), timeout=HOUR)
    system.instance.cancel(jobid)
    wait(system, 10.0)
    system.instance.cancel(jobid)
    run_until_inactive(system, jobid)
    assert is_kept(system, jobid) and "start" not in names(system, jobid)
    assert not any("not copied" in told["note"] for told in exceptions(system, jobid))
    switch_off(system)
    settle_unharmed(system)


def test_a_limit_that_is_over_while_the_module_is_away_is_kept_when_it_is_back() -> (
    None
):
    system = system_of()
    jobid = submit(system)
    assert system.loop.run(in_state(system, "PostRun"), timeout=HOUR)
    system.kill_module()
    wait(system, HOUR)
    assert drained(system) == {}
    system.load_module()
    run_until_inactive(system, jobid, 120.0)
    assert is_kept(system, jobid) and set(drained(system)) == {BAD}
    switch_off(system)
    settle_unharmed(system)


def test_teardown_after_keeps_the_storage_as_well() -> None:
    system = system_of(config={"postrun_timeout": 0, "teardown_after": 90})
    jobid = kept(system)
    wait(system, HOUR)
    switch_off(system)
    wait(system, 10.0)
    assert desired(system, jobid) == "DataOut"
    settle_unharmed(system)
    assert "not copied: " not in record(system, jobid)["errstr"]


def test_an_error_of_dws_does_not_delete_the_storage_under_the_node() -> None:
    system = system_of(STUCK, Fault("PostRun", "error", message="it broke"))
    jobid = submit(system)
    run_until_inactive(system, jobid)
    (told,) = [told for told in exceptions(system, jobid) if told["type"] == "dws"]
    assert told["note"].startswith("DWS failed in PostRun: ")
    wait(system, HOUR)
    assert is_kept(system, jobid) or set(drained(system)) > {BAD}
    switch_off(system)
    settle_unharmed(system)


@pytest.mark.parametrize(("desired", "told"), [("mounted", False), ("unmounted", True)])
def test_dws_has_told_a_node_to_unmount_by_the_desired_state(
    desired: str, told: bool
) -> None:
    assert is_to_be_unmounted({"spec": {"desiredState": desired}}) is told


def test_a_node_that_the_job_went_on_without_may_have_mounted_all_the_same() -> None:
    """One of two file systems: it could write to it, and DWS forgets of it."""
    second = "#DW jobdw type=xfs capacity=1GiB name=p2"
    failing = Fault("PreRun", "mount", node="compute-04")
    system = system_of(failing, config={"prerun_timeout": 30})
    spec = long([XFS, second, COPY_OUT], 4, dw_failure_tolerance=1)
    jobid = system.instance.submit(spec)
    running(system, jobid)
    name = f"default-{workflow_name(jobid)}-0-computes"
    status: Json = {"status": {"mounts": [{"state": "mounted", "ready": True}]}}
    system.store.merge_patch(
        CLIENTMOUNT, "compute-04", name, status, subresource="status"
    )
    wait(system, HOUR)
    assert desired(system, jobid) == "PostRun"
    switch_off(system, "compute-04")
    settle_unharmed(system)


def test_a_node_that_failed_to_mount_holds_up_no_data() -> None:
    failing = Fault("PreRun", "mount", node="compute-04")
    system = system_of(failing, config={"prerun_timeout": 30})
    jobid = submit(system, dw_failure_tolerance=1)
    settle_unharmed(system)
    assert record(system, jobid) == {"success": True}


def test_nor_does_it_for_a_module_that_is_loaded_after_it_was_put_back() -> None:
    failing = Fault("PreRun", "mount", node="compute-04")
    late = Fault("PostRun", "mount", node=BAD, duration=HOUR)
    system = system_of(failing, late, config={"prerun_timeout": 30})
    jobid = kept(system, dw_failure_tolerance=1)
    system.kill_module()
    for host in drained(system):
        system.instance.undrain(host)
    system.load_module()
    settle_unharmed(system)
    assert record(system, jobid)["success"] is True


@pytest.mark.parametrize(
    ("ready", "error", "mounted"),
    [
        (True, False, True),
        (True, True, True),
        (False, False, True),
        (False, True, False),
    ],
)
def test_a_mount_that_failed_is_none(ready: bool, error: bool, mounted: bool) -> None:
    status: Json = {"mounts": [{"state": "mounted", "ready": ready}]}
    if error:
        status["error"] = {"userMessage": "mount/unmount failed"}
    assert is_mounted({"status": status}) is mounted


def test_a_node_that_was_told_to_unmount_before_dws_failed_has_its_storage_kept() -> (
    None
):
    system = system_of(config={"postrun_timeout": 0})
    jobid = submit(system)
    assert system.loop.run(lambda: "epilog-start" in names(system, jobid), timeout=HOUR)
    wait(system, 5.0)
    status: Json = {"status": {"status": "Error", "message": "it broke"}}
    system.store.merge_patch(WORKFLOW, "default", workflow_name(jobid), status)
    run_until_inactive(system, jobid)
    wait(system, HOUR)
    assert is_kept(system, jobid) and set(drained(system)) == {BAD}
    switch_off(system)
    settle_unharmed(system)
    assert "not copied: " in record(system, jobid)["errstr"]


def test_a_node_that_dws_cannot_unmount_costs_the_others_no_data() -> None:
    """DWS reports a TransientCondition when a node has an error."""
    system = system_of()
    jobid = submit(system)
    assert system.loop.run(in_state(system, "PostRun"), timeout=HOUR)
    wait(system, 5.0)
    status: Json = {"status": {"status": "TransientCondition", "message": "busy"}}
    system.store.merge_patch(WORKFLOW, "default", workflow_name(jobid), status)
    run_until_inactive(system, jobid, 20.0)
    assert is_kept(system, jobid)
    (told,) = exceptions(system, jobid)
    assert told["severity"] == 1 and "tc_timeout=10s: busy" in told["note"]
    wait(system, HOUR)
    switch_off(system)
    settle_unharmed(system)
    assert "not copied: " not in record(system, jobid)["errstr"]


def test_a_state_that_a_person_forced_does_not_mount_twice() -> None:
    system = system_of(config={"postrun_timeout": 0})
    jobid = submit(system)
    assert system.loop.run(lambda: "epilog-start" in names(system, jobid), timeout=HOUR)
    wait(system, 5.0)
    name, body = workflow_name(jobid), {"spec": {"forceReady": True}}
    system.store.merge_patch(WORKFLOW, "default", name, body)
    run_until_inactive(system, jobid)
    wait(system, HOUR)
    assert is_kept(system, jobid)
    switch_off(system)
    settle_unharmed(system)


def test_after_an_abort_the_storage_is_kept_from_teardown() -> None:
    system = system_of(plugin_conf={"epilog-timeout": 30.0})
    jobid = submit(system)
    run_until_inactive(system, jobid)
    wait(system, HOUR)
    assert desired(system, jobid) == "PostRun"
    assert set(drained(system)) == {BAD} and shown(system) == {}
    switch_off(system)
    for name in system.topology.rabbits:
        body: Json = {"spec": {"state": "Enabled"}}
        system.store.merge_patch(STORAGE, "default", name, body)
    settle_unharmed(system)


def test_a_node_that_loses_its_power_while_the_job_runs_holds_up_nothing() -> None:
    system = system_of()
    jobid = system.instance.submit(long([XFS, COPY_OUT], 4))
    running(system, jobid)
    switch_off(system)
    settle_unharmed(system)
    assert any(BAD in told["note"] for told in exceptions(system, jobid))


def test_without_fluxion_the_job_ends_as_well() -> None:
    system = system_of(scheduler=False)
    kept(system)
    switch_off(system)
    settle_unharmed(system)


def test_persistent_storage_may_lack_what_the_node_wrote() -> None:
    system = system_of(Fault("PostRun", "mount", node=BAD, match="*"))
    system.instance.submit(jobspec(PERSISTENT, 4))
    settle(system)
    jobid = kept(system, (USE,))
    switch_off(system)
    settle_unharmed(system)
    lost = f"{BAD} may not have written everything to keep"
    found = {"success": False, "errstr": lost, "reason": "unmount-failed"}
    assert record(system, jobid) == found


def test_a_job_with_a_container_keeps_its_nodes_until_its_storage_is_gone() -> None:
    system = system_of(config={"daemons": {"copy-offload": {}}})
    jobid = submit(system, (f"{XFS} requires=copy-offload", COPY_OUT))
    wait(system, HOUR)
    assert system.instance.job(jobid).state is JobState.CLEANUP
    assert desired(system, jobid) == "PostRun"
    switch_off(system)
    settle_unharmed(system)


@pytest.mark.parametrize("stripped", [False, True])
def test_a_person_who_deletes_the_workflow_gets_what_they_ask_for(
    stripped: bool,
) -> None:
    system = system_of()
    jobid = kept(system)
    system.store.delete(WORKFLOW, "default", workflow_name(jobid))
    if stripped:
        body: Json = {"metadata": {"finalizers": None}}
        system.store.merge_patch(WORKFLOW, "default", workflow_name(jobid), body)
    wait(system, 60.0)
    switch_off(system)
    settle(system, DAY)
    assert "was deleted under the job" in record(system, jobid)["errstr"]


def test_a_person_who_does_not_wait_moves_to_teardown_and_disables_the_node() -> None:
    system = system_of()
    jobid = kept(system)
    body: Json = {"spec": {"desiredState": "Teardown"}}
    system.store.merge_patch(WORKFLOW, "default", workflow_name(jobid), body)
    wait(system, HOUR)
    assert desired(system, jobid) == "Teardown" and system.controllers.harm == {}
    disabled: Json = {"data": {"nodes": {BAD: "Disabled"}}}
    system.store.merge_patch(SYSTEMSTATUS, "default", "default", disabled)
    settle(system)
    assert "moved to Teardown under the job" in record(system, jobid)["errstr"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_job_shows_only_the_nodes_that_its_storage_is_still_kept_for(
    restart: bool,
) -> None:
    late = Fault("PostRun", "mount", node="compute-04", duration=600.0)
    system = system_of(STUCK, late, Fault("PostRun", "mount", node="compute-03"))
    jobid = submit(system)
    run_until_inactive(system, jobid)
    waits = job_show(system, jobid)["waits"]
    assert waits.startswith("compute-[02-04] to unmount, or to be off")
    wait(system, 600.0)
    switch_off(system)
    wait(system, 120.0)
    if restart:
        system.kill_module()
        system.load_module()
        wait(system, 1.0)
    assert job_show(system, jobid)["waits"].startswith("compute-03 to unmount")
    switch_off(system, "compute-03")
    settle_unharmed(system)


def test_a_job_that_was_let_go_shows_what_its_storage_is_kept_for() -> None:
    system = system_of(
        plugin_conf={"epilog-timeout": 30.0}, config={"postrun_timeout": 0}
    )
    jobid = submit(system)
    run_until_inactive(system, jobid)
    wait(system, 60.0)
    assert job_show(system, jobid)["waits"].startswith(f"{BAD} to unmount")
    assert lines(system, f"{BAD}: its epilog was given up, and Rabbit storage could")
    wait(system, HOUR)
    assert desired(system, jobid) == "PostRun" and shown(system) == {}


def test_a_job_shows_what_its_storage_is_kept_for() -> None:
    system = system_of()
    jobid = kept(system)
    wait(system, 10.0)
    shows = job_show(system, jobid)
    assert shows["waits"].startswith(f"{BAD} to unmount, or to be off")
    assert shows["limits"] == []
    assert mounts_line(shows["mounts"]) == f"3/4 unmounted, waiting for: {BAD}"
    found = json.loads(system.instance.job(jobid).kvs["rabbit_kept_for"])
    assert found["nodes"] == BAD and "to unmount" in found["until"]
    switch_off(system)
    settle_unharmed(system)


def test_by_default_dws_deletes_the_storage_as_before() -> None:
    system = system_of(config={"unmount_failure": "teardown"})
    jobid = submit(system)
    settle(system)
    assert shown(system) == {BAD: "Disabled"}
    assert system.controllers.harm == {(workflow_name(jobid), BAD): "deleted"}


def test_a_node_that_is_left_out_has_its_file_system_mounted_twice() -> None:
    """As with real DWS: what the service is to prevent."""
    system = system_of(config={"unmount_failure": "teardown", "postrun_timeout": 0})
    jobid = submit(system)
    assert system.loop.run(lambda: "epilog-start" in names(system, jobid), timeout=HOUR)
    wait(system, 5.0)
    system.instance.drain(BAD, f"{f58(jobid)}: {REASON}")
    settle(system)
    mounted_twice = "mounted a second time", "deleted"
    assert system.controllers.harm[workflow_name(jobid), BAD] in mounted_twice


def kept_persistent(type: str) -> tuple[VirtualSystem, int]:
    """A system with a job whose persistent storage a node does not unmount."""
    system = system_of(Fault("PostRun", "mount", node=BAD, match="*"))
    system.instance.submit(jobspec(PERSISTENT.replace("xfs", type), 4))
    settle(system)
    return system, kept(system, (USE,))


def test_persistent_storage_is_not_mounted_for_another_job_while_a_node_has_it() -> (
    None
):
    """DataOut mounts all allocations on the Rabbits, that of the bad node too."""
    system, jobid = kept_persistent("xfs")
    other = submit(system, (USE, COPY), 3)
    wait(system, HOUR)
    assert is_kept(system, jobid)
    assert "alloc" not in names(system, other)
    waits = system.instance.job(other).annotations["user"]["rabbit_waits_for"]
    assert f"{BAD} has not unmounted the persistent storage keep of job" in waits
    switch_off(system)
    settle_unharmed(system)
    assert "start" in names(system, other)


def test_a_job_that_runs_waits_before_its_data_goes_out() -> None:
    system = system_of(Fault("PostRun", "mount", node=BAD, match="*"))
    system.instance.submit(jobspec(PERSISTENT, 4))
    settle(system)
    first, second = ({"hostlist": [f"compute-0[{n}]"]} for n in ("1,3", "2,4"))
    other = system.instance.submit(long([USE, COPY], 2, HOUR, constraints=first))
    running(system, other)
    jobid = kept(system, (USE,), nodes=2, constraints=second)
    wait(system, 2 * HOUR)
    assert is_kept(system, jobid) and desired(system, other) == "PostRun"
    switch_off(system)
    settle_unharmed(system)
    assert record(system, other) == {"success": True}


@pytest.mark.parametrize("type", ["gfs2", "lustre"])
def test_a_file_system_of_a_cluster_is_mounted_for_others_meanwhile(type: str) -> None:
    system, jobid = kept_persistent(type)
    other = submit(system, (USE,), 3)
    wait(system, HOUR)
    assert is_kept(system, jobid)
    assert "clean" in names(system, other)


def test_the_nodes_that_dws_has_not_told_yet_to_unmount_return_to_service() -> None:
    system = system_of()
    jobid = kept(system, TWO)
    assert drained(system) == {BAD: f"{f58(jobid)}: {REASON}"} and shown(system) == {}
    other = system.instance.submit(long("", 3, 10))
    running(system, other)
    wait(system, HOUR)
    assert is_kept(system, jobid)
    switch_off(system)
    settle_unharmed(system)
    lost = f"{BAD} has not unmounted: what it had not written is not copied"
    assert record(system, jobid)["errstr"] == lost


def test_they_are_waited_for_when_the_bad_node_is_off_before_the_time_is_over() -> None:
    system = system_of()
    jobid = submit(system, TWO)
    assert system.loop.run(in_state(system, "PostRun"), timeout=HOUR)
    wait(system, LIMIT - 1.0)
    switch_off(system)
    run_until_inactive(system, jobid)
    settle_unharmed(system)
    assert drained(system).keys() <= {BAD}
    assert record(system, jobid)["errstr"].startswith(f"{BAD} has not unmounted")


def test_without_keep_only_the_node_that_was_told_to_unmount_is_drained() -> None:
    latency = table({"PostRun": 0.5, "Teardown": 0.5})
    system = started(
        topology=Topology.regular(4, 2, capacity=200 * GIB),
        options=Options(latency=latency, faults=(STUCK,)),
        config=Config.parse({"postrun_timeout": LIMIT}),
    )
    jobid = submit(system, TWO)
    settle(system, DAY)
    assert drained(system) == {BAD: f"{f58(jobid)}: {REASON}"}


def test_a_node_that_dws_passes_over_is_drained_when_the_storage_is_gone() -> None:
    both = Fault("PostRun", "mount", node="compute-0[23]")
    latency = table({"PostRun": 0.5, "Teardown": 0.5})
    system = started(
        topology=Topology.regular(4, 2, capacity=200 * GIB),
        options=Options(latency=latency, faults=(both,)),
        config=Config.parse({"postrun_timeout": LIMIT}),
    )
    jobid = submit(system, TWO, 4)
    assert system.loop.run(in_state(system, "PostRun"), timeout=HOUR)
    body = {"data": {"nodes": {"compute-03": "Disabled"}}}
    system.store.merge_patch(SYSTEMSTATUS, "default", "default", body)
    settle(system, DAY)
    reason = f"{f58(jobid)}: {REASON}"
    assert drained(system) == {BAD: reason, "compute-03": reason}


def test_a_job_that_is_cancelled_while_it_mounts_gives_its_other_nodes_back() -> None:
    system, jobid = cancelled_while_it_mounts()
    wait(system, LIMIT / 2)
    assert "clean" not in names(system, jobid)
    wait(system, HOUR)
    assert desired(system, jobid) == "Teardown"
    assert "clean" in names(system, jobid)
    assert drained(system) == {BAD: f"{f58(jobid)}: {REASON}"}
    told = exceptions(system, jobid)[1]
    assert (told["type"], told["severity"]) == ("dws-node-failure", 1)
    assert told["note"].startswith(f"{BAD}: Teardown took more than postrun_timeout")
    assert record(system, jobid)["errstr"] == "the job did not run"


def test_its_storage_is_not_given_to_others_before_it_is_gone() -> None:
    system, _ = cancelled_while_it_mounts()
    wait(system, HOUR)
    other = submit(system, (ALL,), 1, constraints={"hostlist": ["compute-01"]})
    wait(system, 600.0)
    assert "alloc" not in names(system, other)
    settle_unharmed(system)
    assert "start" in names(system, other)


@pytest.mark.parametrize("end", ["kill_module", "unload_module"])
def test_a_module_that_is_loaded_again_keeps_the_record_of_such_a_job(end: str) -> None:
    system, jobid = cancelled_while_it_mounts()
    wait(system, HOUR)
    before = record(system, jobid)
    getattr(system, end)()
    wait(system, 60.0)
    system.load_module()
    settle_unharmed(system)
    assert record(system, jobid) == before


def test_without_keep_such_a_job_waits_for_all_of_its_nodes() -> None:
    system, jobid = cancelled_while_it_mounts({"postrun_timeout": LIMIT})
    wait(system, HOUR)
    assert "clean" not in names(system, jobid) and drained(system) == {}
