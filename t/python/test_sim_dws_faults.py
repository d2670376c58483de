# Copyright 2026 the flux-dws developers
# SPDX-License-Identifier: LGPL-3.0-only
"""What can go wrong in the stand-in controllers, and how it ends."""

from __future__ import annotations

from typing import Any, Sequence

import pytest

from flux_k8s.ports import CLIENTMOUNT, COMPUTES, SERVERS, STORAGE, SYSTEMSTATUS, Json
from rabbitsim.cli import main
from rabbitsim.dws import Fault, Options, Topology, constant
from rabbitsim.dws.directive import STATES
from support.dws import XFS, System


def start(
    *faults: Fault,
    until: str = "Proposal",
    directives: Sequence[str] = (XFS,),
    **options: Any,
) -> System:
    """A system with a job that was brought to a state, which it is in or not."""
    options = {"latency": constant(0.1), **options}
    system = System(Options(faults=faults, **options))
    system.submit(*directives)
    for state in STATES[: STATES.index(until)]:
        if state != "Proposal":
            assert system.go(state)["ready"]
        else:
            system.wait()
            system.assign()
    if until != "Proposal":
        system.patch({"desiredState": until})
    system.sleep(0.05)
    return system


def after(system: System, seconds: float) -> Json:
    system.sleep(seconds)
    return system.status()


@pytest.mark.parametrize("state", STATES)
def test_an_error_can_be_injected_in_any_state(state: str) -> None:
    system = start(Fault(state, "error", message="it broke"), until=state)
    status = system.wait()
    assert (status["state"], status["status"]) == (state, "Error")
    assert not status["ready"]
    assert "it broke" in status["message"]


@pytest.mark.parametrize("state", STATES)
def test_a_transient_condition_lasts_as_long_as_it_was_told(state: str) -> None:
    system = start(Fault(state, "transient", duration=5), until=state)
    status = after(system, 1)
    assert (status["status"], status["ready"]) == ("TransientCondition", False)
    status = after(system, 3)
    assert status["status"] == "TransientCondition"
    status = after(system, 2)
    assert (status["status"], status["ready"]) == ("Completed", True)
    assert "message" not in status


@pytest.mark.parametrize("state", STATES)
def test_a_state_that_never_gets_ready_stays_driver_wait(state: str) -> None:
    system = start(Fault(state, "never"), until=state)
    status = after(system, 3600)
    assert (status["status"], status["ready"]) == ("DriverWait", False)


@pytest.mark.parametrize("state", STATES)
def test_a_state_can_be_slow(state: str) -> None:
    system = start(Fault(state, "slow", duration=30), until=state)
    assert not after(system, 29)["ready"]
    assert after(system, 2)["ready"]


@pytest.mark.parametrize("state", STATES[:-1])
def test_a_workflow_stuck_in_any_state_can_be_torn_down(state: str) -> None:
    system = start(Fault(state, "never"), until=state)
    system.remove()
    system.check_clean()


def test_a_fault_is_injected_only_into_the_workflows_that_it_names() -> None:
    options = Options(faults=(Fault("Proposal", "error", match="bad*"),))
    system = System(options)
    for name in ("bad1", "good1"):
        system.submit(XFS, name=name)
    assert system.wait("bad1")["status"] == "Error"
    assert system.wait("good1")["status"] == "Completed"


@pytest.mark.parametrize("kind", ["error", "transient"])
def test_force_ready_ends_a_state_and_is_cleared_in_the_next(kind: str) -> None:
    system = start(Fault("Setup", kind), until="Setup")
    after(system, 1)
    system.patch({"forceReady": True})
    status = after(system, 1)
    assert (status["ready"], status["status"]) == (True, "Completed")
    assert status["message"] == "Forced Ready"
    driver = next(d for d in status["drivers"] if d["watchState"] == "Setup")
    assert driver["error"] and not driver["completed"]
    status = system.go("DataIn")
    assert system.workflow()["spec"]["forceReady"] is False
    assert "message" not in status
    for state in STATES[3:]:
        assert system.go(state)["ready"]
    system.remove()
    system.check_clean()


def test_storage_that_fails_on_one_rabbit_is_made_on_the_others() -> None:
    system = start(Fault("Setup", "error", node="rabbit-02"), until="Setup")
    assert system.wait()["status"] == "Error"
    after(system, 1)
    servers = system.store.get(SERVERS, "default", "job-0")
    assert servers["status"]["allocationSets"][0]["storage"] == {
        "rabbit-01": {"allocationSize": 11051991040, "ready": True},
        "rabbit-02": {"allocationSize": 0, "ready": False},
    }
    system.remove()
    system.check_clean()


def test_a_mount_that_fails_is_shown_in_the_client_mount_of_the_node() -> None:
    fault = Fault("PreRun", "mount", node="compute-04", message="no such device")
    system = start(fault, until="PreRun")
    status = after(system, 1)
    assert status["status"] == "TransientCondition"
    assert "unable to mount" in status["message"]
    name = "default-job-0-computes"
    bad = system.store.get(CLIENTMOUNT, "compute-04", name)["status"]
    assert bad["error"]["userMessage"] and bad["error"]["debugMessage"]
    assert (bad["allReady"], bad["mounts"][0]["ready"]) == (False, False)
    good = system.store.get(CLIENTMOUNT, "compute-01", name)["status"]
    assert good["allReady"] and "error" not in good


def test_a_job_goes_on_without_the_node_that_could_not_mount() -> None:
    system = start(Fault("PreRun", "mount", node="compute-04"), until="PreRun")
    after(system, 1)
    data = {"data": [{"name": "compute-01"}]}
    system.store.merge_patch(COMPUTES, "default", "job", data)
    system.patch({"forceReady": True})
    status = system.wait()
    assert status["message"] == "Forced Ready"
    assert "DW_JOB_project1" in status["env"]
    for state in STATES[4:]:
        assert system.go(state)["ready"]
    system.remove()
    system.check_clean()


def test_a_mount_may_succeed_in_the_end() -> None:
    system = start(Fault("PreRun", "mount", duration=5), until="PreRun")
    assert after(system, 4)["status"] == "TransientCondition"
    assert after(system, 2)["ready"]
    for mount in system.items(CLIENTMOUNT):
        assert mount["status"]["allReady"] and "error" not in mount["status"]


def test_a_node_that_died_keeps_its_mount_until_it_is_disabled() -> None:
    system = start(Fault("PostRun", "mount", node="compute-01"), until="PostRun")
    assert not after(system, 60)["ready"]
    mount = system.store.get(CLIENTMOUNT, "compute-01", "default-job-0-computes")
    assert mount["spec"]["desiredState"] == "unmounted"
    assert mount["status"]["mounts"] == [{"ready": True, "state": "mounted"}]
    disabled = {"data": {"nodes": {"compute-01": "Disabled"}}}
    system.store.merge_patch(SYSTEMSTATUS, "default", "default", disabled)
    assert after(system, 1)["ready"]


def test_a_rabbit_that_goes_down_stops_its_jobs_until_it_is_back() -> None:
    fault = Fault("Setup", "rabbit", node="rabbit-01", duration=20)
    system = start(fault, until="Setup")
    assert after(system, 10)["status"] == "TransientCondition"
    storage = system.store.get(STORAGE, "default", "rabbit-01")["status"]
    assert storage["status"] == storage["access"]["servers"][0]["status"] == "Offline"
    status = after(system, 15)
    assert (status["status"], status["ready"]) == ("Completed", True)
    storage = system.store.get(STORAGE, "default", "rabbit-01")["status"]
    assert storage["status"] == "Ready"


def test_a_rabbit_that_is_disabled_says_so() -> None:
    system = System()
    for state, shown in (("Disabled", "Disabled"), ("Enabled", "Ready")):
        patch = {"spec": {"state": state}}
        system.store.merge_patch(STORAGE, "default", "rabbit-02", patch)
        system.sleep(1)
        storage = system.store.get(STORAGE, "default", "rabbit-02")
        assert storage["status"]["status"] == shown


def test_a_link_that_is_cut_before_mounts_keeps_all_nodes_from_mounting() -> None:
    system = start(until="DataIn")
    system.controllers.rabbits.set_link("compute-04", up=False)
    system.wait()
    system.patch({"desiredState": "PreRun"})
    status = after(system, 1)
    assert (status["status"], status["ready"]) == ("DriverWait", False)
    assert system.items(CLIENTMOUNT) == []
    access = system.store.get(STORAGE, "default", "rabbit-02")["status"]["access"]
    assert {c["name"]: c["status"] for c in access["computes"]} == {
        "compute-03": "Ready",
        "compute-04": "Offline",
    }
    system.controllers.rabbits.set_link("compute-04", up=True)
    assert system.wait()["ready"]


def test_nodes_mount_once_the_node_that_is_cut_off_has_left() -> None:
    system = start(until="DataIn")
    system.controllers.rabbits.set_link("compute-04", up=False)
    system.wait()
    system.patch({"desiredState": "PreRun"})
    assert not after(system, 1)["ready"]
    data = {"data": [{"name": "compute-01"}]}
    system.store.merge_patch(COMPUTES, "default", "job", data)
    assert system.wait()["ready"]
    assert [m["metadata"]["namespace"] for m in system.items(CLIENTMOUNT)] == [
        "compute-01"
    ]


@pytest.mark.parametrize("kind", ["error", "never"])
def test_a_node_that_says_nothing_keeps_only_itself_from_mounting(kind: str) -> None:
    system = start(Fault("PreRun", kind, node="compute-04"), until="PreRun")
    status = after(system, 1)
    assert not status["ready"]
    assert status["status"] == ("Error" if kind == "error" else "DriverWait")
    name = "default-job-0-computes"
    good = system.store.get(CLIENTMOUNT, "compute-01", name)
    bad = system.store.get(CLIENTMOUNT, "compute-04", name)
    assert good["status"]["allReady"] and "status" not in bad


def test_directives_are_looked_after_one_by_one() -> None:
    second = "#DW jobdw type=raw capacity=1GiB name=project2"
    fault = Fault("PreRun", "mount", node="compute-04", duration=5)
    system = start(fault, directives=[XFS, second], until="PreRun")
    status = after(system, 1)
    assert "DW_JOB_project1" in status["env"] and "DW_JOB_project2" not in status["env"]
    assert system.wait()["ready"]
    assert "DW_JOB_project2" in system.workflow()["status"]["env"]


@pytest.mark.parametrize("state", ["DataIn", "PreRun"])
def test_storage_missing_on_a_rabbit_holds_up_later_states(state: str) -> None:
    type = "xfs" if state == "DataIn" else "raw"
    directives = [f"#DW jobdw type={type} capacity=1GiB name=project1"]
    if state == "DataIn":
        directives.append("#DW copy_in source=/lustre/x destination=$DW_JOB_project1/")
    fault = Fault("Setup", "transient", node="rabbit-02")
    system = start(fault, directives=directives, until="Setup")
    after(system, 1)
    data = {"data": [{"name": "compute-01"}]}
    system.store.merge_patch(COMPUTES, "default", "job", data)
    system.patch({"forceReady": True})
    system.wait()
    if state == "PreRun":
        system.go("DataIn")
    system.patch({"desiredState": state})
    assert not after(system, 60)["ready"]


@pytest.mark.parametrize(
    "text, fault",
    [
        ("Setup:error", Fault("Setup", "error")),
        ("PreRun:mount:compute-02", Fault("PreRun", "mount", node="compute-02")),
        ("Setup:never:rabbit-*:5", Fault("Setup", "never", "*", 5.0, "rabbit-*")),
    ],
)
def test_a_fault_can_be_written_in_one_word(text: str, fault: Fault) -> None:
    assert Fault.parse(text) == fault


@pytest.mark.parametrize(
    "text, problem",
    [
        ("Setup", "'Setup' is not STATE:KIND[:NODE[:SECONDS]]"),
        ("Setup:error:a:1:2", "'Setup:error:a:1:2' is not STATE:KIND"),
        ("Setup:error:a:x", "fault duration is 'x', expected seconds"),
        ("Setup:boom", "fault kind is 'boom', expected one of error"),
    ],
)
def test_a_word_that_is_no_fault_is_refused(
    text: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dws", "--fault", text]) == 2
    assert capsys.readouterr().err.startswith(f"rabbitsim: {problem}")


def test_hurry_skips_the_time_that_teardown_takes() -> None:
    system = start(Fault("Teardown", "slow", duration=100), until="DataIn")
    system.patch({"desiredState": "Teardown", "hurry": True})
    assert after(system, 1)["ready"]


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("Running", "error"), "fault state is 'Running', expected one of Proposal"),
        (("Setup", "boom"), "fault kind is 'boom', expected one of error"),
        (("Setup", "slow", "*", -1.0), "fault duration is -1.0, expected seconds"),
        (("PreRun", "stall"), "no data moves in PreRun: a stall is one of DataIn"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(arguments: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text.replace("(", r"\(")):
        Fault(*arguments)


def test_a_regular_topology_spreads_nodes_evenly() -> None:
    topology = Topology.regular(5, 2, capacity=7, node_prefix="n", rabbit_prefix="r")
    assert [r.computes for r in topology.rabbits.values()] == [
        ("n01", "n02"),
        ("n03", "n04", "n05"),
    ]
    assert Topology.from_mapping(topology.mapping()) == topology
    with pytest.raises(ValueError, match="1 nodes on 2 Rabbits"):
        Topology.regular(1, 2)
